"""Random and mutated frames against coordinator and tablet of a whole server, while a witness writes and reads.

`FLUSS_FUZZ_FRAMES` sets how many; `python3 dev.py soak` sends a million.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil

from fluss.codec.batches.kv_batch import encode_kv_batch
from fluss.codec.crc import crc32c
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tests.fuzz.campaign import Attacker, run_campaign
from tests.fuzz.frame_maker import FrameMaker
from tests.support.servers.log_cluster import COLUMNS, arrow_batch, ids_of
from tools.servers.messages import table_document, text_column
from tools.servers.server_process import ServerProcess
from tools.servers.wire_client import WireClient

FRAMES = int(os.environ.get("FLUSS_FUZZ_FRAMES", "50000"))
MAX_GROWTH_BYTES = 256 * 1024 * 1024
MAX_LOG_BYTES = 500_000
LOG_KEYS = [ApiKey.PRODUCE_LOG, ApiKey.FETCH_LOG, ApiKey.LIST_OFFSETS, ApiKey.LIMIT_SCAN]
STAGED_KEYS = [ApiKey.STAGE_LOG, ApiKey.PREPARE_STAGED, ApiKey.APPLY_STAGED, ApiKey.ABORT_STAGED]
KV_KEYS = [
    *(ApiKey.PUT_KV, ApiKey.LOOKUP, ApiKey.PREFIX_LOOKUP, ApiKey.SCAN_KV, ApiKey.LIMIT_SCAN),
    *(ApiKey.SPLIT_KV, ApiKey.SCAN_KV_RANGE),
]
KV_COLUMNS = ({"name": "id", "data_type": {"type": "INTEGER", "nullable": False}}, text_column("name"))
# One row (1, "a"), in both formats of rows; one row (2, null), a delete of 1 and one of 3.
KV_BATCHES = [
    encode_kv_batch([b"\x01"], [b"\x00\x01\x01a"], 1),
    encode_kv_batch([b"\x01"], [b"\x00\x01\x00\x00\x00\x01\x00\x00\x00a"], 1),
    encode_kv_batch([b"\x02", b"\x01", b"\x03"], [b"\x02\x02", None, None], 1, writer_id=5, batch_sequence=0),
]
# What damaged batches are written to: the last row wins, texts are joined, rows in another format, partitions.
KV_TABLES: dict[str, dict[str, Any]] = {
    "keyed0": {},
    "keyed1": {"properties": {"table.merge-engine": "aggregation", "table.delete.behavior": "allow"}},
    "keyed2": {"properties": {"table.kv.format": "INDEXED"}},
}
KV_CRC_START = 9
LIKELY = {
    "bucket_id": [0],
    "acks": [-1, 0, 1],
    "fetch_offset": [-2, 0, 1, 5],
    "max_bytes": [1000, 16 * 1024 * 1024],
    "max_fetch_bytes": [100, 1024 * 1024],
    "offset_type": [0, 1, 2],
    "limit": [1, 10],
    "call_seq_id": [0, 1],
    "batch_size_bytes": [100, 1024 * 1024],
    "target_columns": [0, 1],
    "timeout_ms": [1, 1000],
    "writer_id": [3],
    "batch_id": [0, 1],
    "batch_count": [1],
}
DATABASE = "bystander"  # a name that the frame maker does not know


def repaired_kv_batch(damaged: bytes) -> bytes:
    """The length and the checksum fit, whatever the rest says."""
    if len(damaged) < KV_CRC_START:
        return damaged
    covered = damaged[KV_CRC_START:]
    front = len(damaged) - 4
    return front.to_bytes(4, "little") + damaged[4:5] + crc32c(covered).to_bytes(4, "little") + covered


class Witness:
    """Another user's tables, written and read all the time."""

    def __init__(self, coordinator: WireClient, tablet: WireClient, table_id: int, keyed_id: int) -> None:
        self._coordinator = coordinator
        self._tablet = tablet
        self._table_id = table_id
        self._keyed_id = keyed_id
        self._next = 0

    def __call__(self) -> None:
        """Append one row, read it back; put one row, look it up; ask for metadata."""
        text = str(self._next).encode()
        row = b"\x00\x01" + bytes((len(text),)) + text
        put = pb.PutKvRequest(acks=-1, table_id=self._keyed_id, timeout_ms=30_000)
        put.buckets_req.add(bucket_id=0, records=encode_kv_batch([b"\x01"], [row], 1))
        assert not self._tablet.call(ApiKey.PUT_KV, put).buckets_resp[0].HasField("error_code")
        lookup = pb.LookupRequest(table_id=self._keyed_id)
        lookup.buckets_req.add(bucket_id=0, keys=[b"\x01"])
        assert self._tablet.call(ApiKey.LOOKUP, lookup).buckets_resp[0].values[0].values == b"\x01\x00" + row
        written = self._tablet.produce(self._table_id, 0, arrow_batch([self._next]))
        assert written.base_offset == self._next, written
        fetched = self._tablet.fetch(self._table_id, 0, self._next)
        assert ids_of(fetched.records)[-1] == self._next
        assert len(self._coordinator.metadata((DATABASE, "seen")).table_metadata) == 1
        self._next += 1


def _create_table(coordinator: WireClient, name: str, document: bytes | None = None) -> int:
    path = pb.PbTablePath(database_name=DATABASE, table_name=name)
    document = document or table_document(COLUMNS)
    request = pb.CreateTableRequest(table_path=path, table_json=document, ignore_if_exists=False)
    coordinator.call(ApiKey.CREATE_TABLE, request)
    return int(coordinator.metadata((DATABASE, name)).table_metadata[0].table_id)


def _served_keys(client: WireClient) -> list[int]:
    return [entry.api_key for entry in client.api_versions().api_versions if entry.api_key != ApiKey.AUTHENTICATE]


def _attack(tmp_path: Path, frame_count: int) -> None:
    with ServerProcess(tmp_path / "data") as server, WireClient.connect(server.address) as coordinator:
        database = pb.CreateDatabaseRequest(database_name=DATABASE, ignore_if_exists=False)
        coordinator.call(ApiKey.CREATE_DATABASE, database)
        targets = [_create_table(coordinator, f"target{number}") for number in range(3)]
        keyed_targets = [
            _create_table(coordinator, name, table_document(KV_COLUMNS, primary_key=["id"], bucket_count=1, **more))
            for name, more in KV_TABLES.items()
        ]
        # The witness's tables have ids that the frame maker does not know either.
        while (table_id := _create_table(coordinator, "seen")) < 10:
            path = pb.PbTablePath(database_name=DATABASE, table_name="seen")
            coordinator.call(ApiKey.DROP_TABLE, pb.DropTableRequest(table_path=path, ignore_if_not_exists=False))
        keyed = table_document(KV_COLUMNS, primary_key=["id"], bucket_count=1)
        keyed_id = _create_table(coordinator, "seen_keyed", keyed)
        likely = {**LIKELY, "table_id": [*targets, *keyed_targets]}
        keyed_likely = {**LIKELY, "table_id": keyed_targets}
        node = coordinator.metadata().tablet_servers[0]
        host, _, port = server.address.rpartition(":")
        with WireClient(node.host, node.port) as tablet:
            batches = [arrow_batch([1, 2, 3]), arrow_batch([7], writer_id=3, batch_sequence=0)]
            careful = [int(ApiKey.FETCH_LOG)]
            attackers = [
                Attacker((host, int(port)), FrameMaker(1, _served_keys(coordinator)), 1),
                Attacker((node.host, node.port), FrameMaker(2, _served_keys(tablet), batches, careful, likely), 2),
                Attacker((node.host, node.port), FrameMaker(3, [*LOG_KEYS, *STAGED_KEYS], batches, careful, likely), 3),
                Attacker(
                    (node.host, node.port),
                    FrameMaker(4, KV_KEYS, KV_BATCHES, careful, keyed_likely, repaired_kv_batch),
                    4,
                ),
            ]
            process = psutil.Process(server.process.pid)
            outcome = run_campaign(attackers, Witness(coordinator, tablet, table_id, keyed_id), process, frame_count)
            for target in (*targets, *keyed_targets):
                assert tablet.fetch(target, 0, 0).high_watermark > 0, "nothing got through"
        log_bytes = server.log_path.stat().st_size
        print(outcome)
        assert outcome.witness_errors == []
        assert outcome.witness_calls > 0
        assert outcome.successes > frame_count // 100
        assert (outcome.unanswered_bursts, outcome.closed_by_server) == (0, 0)
        assert outcome.growth_bytes < MAX_GROWTH_BYTES
        assert log_bytes < MAX_LOG_BYTES
        assert "Traceback" not in server.log_text(), server.log_text()[:5000]


def test_the_server_survives(tmp_path: Path) -> None:
    _attack(tmp_path, FRAMES)
