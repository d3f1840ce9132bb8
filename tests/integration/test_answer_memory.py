"""A few small requests can ask for gigabytes: the server makes what fits into its budgets, and gives memory back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

import fluss
from fluss.codec.keys.encoding import KeyEncoding, encode_key
from fluss.model import types as t
from fluss.protocol.api_keys import APIS, ApiKey
from fluss.protocol.frames import TYPE_SUCCESS
from fluss.server.network.limits import MIB, NetworkLimits
from fluss.server.tablet.kv.kv_reads import STEP_BYTES
from fluss.server.tablet.kv.lookup import STEP_KEYS
from tests.support.runner.lanes import rounds
from tests.support.tables.log_workload import leaders
from tools.servers.server_process import ServerProcess
from tools.servers.wire_client import WireClient
from tools.waiting import wait_until

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
ROW_BYTES, KEYS = 60_000, 2_100
ANSWER_BYTES = ROW_BYTES * KEYS


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", tablets=1) as server:
        yield server


def megabytes(process: psutil.Process, field: str) -> float:
    """What Linux says of a process: `VmRSS` now, `VmHWM` at its most."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def sizes(client: WireClient, count: int) -> list[int]:
    """The bytes of each answer, taken one after the other."""
    found = []
    for _ in range(count):
        _, kind, body = client.receive_frame()
        assert kind == TYPE_SUCCESS
        found.append(len(body))
    return found


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    ("key", "connections", "requests"),
    [
        (ApiKey.LOOKUP, 1, rounds(gate=3, all_lanes=60)),
        pytest.param(ApiKey.LOOKUP, 10, 3, marks=pytest.mark.all),
        pytest.param(ApiKey.PREFIX_LOOKUP, 1, 6, marks=pytest.mark.all),
    ],
)
def test_one_row_many_times(server: ServerProcess, key: ApiKey, connections: int, requests: int) -> None:
    with fluss.connect(server.address) as db:
        db.create_table("t", fluss.Schema(SCHEMA, primary_keys=["id"]), bucket_count=1)
        db.upsert("t", [{"id": 1, "text": "x" * ROW_BYTES}])
        db.create_table("log", SCHEMA, bucket_count=1)
        db.append("log", [{"id": 1, "text": "x"}])
        tablet = server.process_of("tablet-0")
        assert tablet is not None
        with WireClient.connect(server.address) as client:
            table_id = client.metadata(("fluss", "t")).table_metadata[0].table_id
        before = megabytes(tablet, "VmRSS")
        request: Any = APIS[key].request(table_id=table_id)
        request.buckets_req.add(bucket_id=0, keys=[encode_key([1], [t.BigIntType()], KeyEncoding.COMPACTED)] * KEYS)
        clients = [WireClient(*leaders(server.address, "t")[0]) for _ in range(connections)]
        for client in clients:
            for _ in range(requests):
                client.send(key, request, 1)
        with ThreadPoolExecutor(connections) as threads:
            taken = [threads.submit(sizes, client, requests) for client in clients]
            db.append("log", [{"id": 2, "text": "written meanwhile"}])
            for each in taken:
                assert min(each.result()) > ANSWER_BYTES
        # Each connection may have made one step of its answer; one answer is made, joined, and in the socket's buffer.
        steps = connections * STEP_KEYS * ROW_BYTES
        most = (NetworkLimits().max_answer_bytes_in_memory + steps + 3 * ANSWER_BYTES) / MIB
        assert megabytes(tablet, "VmHWM") - before < most
        wait_until(lambda: megabytes(tablet, "VmRSS") < before * 1.2, "the memory is given back")
        for client in clients:
            client.close()


@pytest.mark.all
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_many_first_rows_at_once(server: ServerProcess) -> None:
    """Six connections that each ask for all rows twice, in one frame after the other."""
    key, connections, requests = ApiKey.LIMIT_SCAN, 6, 2
    with fluss.connect(server.address) as db:
        db.create_table("t", fluss.Schema(SCHEMA, primary_keys=["id"]), bucket_count=1)
        for first in range(0, KEYS, 100):
            db.upsert("t", [{"id": number, "text": "x" * ROW_BYTES} for number in range(first, first + 100)])
        with WireClient.connect(server.address) as client:
            table_id = client.metadata(("fluss", "t")).table_metadata[0].table_id
        request: Any = APIS[key].request(table_id=table_id, bucket_id=0, limit=KEYS)
        tablet = server.process_of("tablet-0")
        assert tablet is not None
        with WireClient(*leaders(server.address, "t")[0]) as client:  # RocksDB fills its cache
            client.send(key, request, 0)
            (size,) = sizes(client, 1)
        before = megabytes(tablet, "VmHWM")
        clients = [WireClient(*leaders(server.address, "t")[0]) for _ in range(connections)]
        for client in clients:
            for _ in range(requests):
                client.send(key, request, 0)
        with ThreadPoolExecutor(connections) as threads:
            taken = [threads.submit(sizes, client, requests) for client in clients]
            assert {answer for each in taken for answer in each.result()} == {size}
        most = (NetworkLimits().max_answer_bytes_in_memory + connections * STEP_BYTES + 4 * ANSWER_BYTES) / MIB
        assert megabytes(tablet, "VmHWM") - before < most
        wait_until(lambda: megabytes(tablet, "VmRSS") < before * 1.2, "the memory is given back")
        for client in clients:
            client.close()
