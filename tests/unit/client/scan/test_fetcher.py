"""What the fetcher asks, and what it makes of the answers, against a scripted cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

from fluss.client.decode.bad_batches import BadBatch
from fluss.client.decode.decoder import BatchDecoder, Decoded
from fluss.client.decode.scan_plan import ScanPlan
from fluss.client.net.metadata import ClientTable
from fluss.client.scan import decode_stage, fetcher, ready_queue
from fluss.client.scan.fetcher import Fetcher
from fluss.client.scan.ready_queue import ReadyQueue
from fluss.client.scan.subscription import Subscription
from fluss.codec.arrow.compression import NO_COMPRESSION
from fluss.codec.batches.arrow_batch import encode_arrow_batch
from fluss.codec.batches.log_batch import stamp
from fluss.config import Config
from fluss.errors import FlussError
from fluss.model import types as t
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import TablePath
from fluss.model.schema import Column, Schema
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.client_payloads import FetchAnswer
from fluss.values.basic import TABLET_SERVER, ServerNode, TableBucket
from tools.waiting import eventually, patience

SCHEMA = Schema((Column("id", t.IntType()), Column("name", t.StringType()))).numbered()
TABLE = ClientTable(TablePath("db", "t"), 5, 1, TableDescriptor(SCHEMA, bucket_count=4), 0, 0)
NODE = ServerNode(0, "host", 1, TABLET_SERVER)
DEADLINE_SECONDS = patience(60.0)

Answer = Callable[[pb.FetchLogRequest], "FetchAnswer | FlussError | None"]


def records(first: int, count: int) -> memoryview:
    columns = [pa.array(range(first, first + count), pa.int32()), pa.array(["x"] * count)]
    rows = pa.RecordBatch.from_arrays(columns, ["id", "name"])
    data = bytearray(encode_arrow_batch(rows, 1, NO_COMPRESSION))
    stamp(data, 0, first, 0)
    return memoryview(data)


def answer(**buckets: memoryview | dict[str, Any]) -> FetchAnswer:
    """`b0=records` or `b0={"error_code": 12}`."""
    message = pb.FetchLogResponse()
    table = message.tables_resp.add(table_id=5)
    payloads: list[memoryview | None] = []
    for name, content in buckets.items():
        if isinstance(content, dict):
            table.buckets_resp.add(bucket_id=int(name[1:]), **content)
            payloads.append(memoryview(b"") if "filtered_end_offset" in content else None)
        else:
            table.buckets_resp.add(bucket_id=int(name[1:]), high_watermark=0)
            payloads.append(content)
    return FetchAnswer(message, payloads)


class ScriptedCluster:
    """Every fetch takes the next answer of the script; None, and the end of the script, wait for ever."""

    def __init__(self, *script: Answer | FetchAnswer | FlussError | None, **options: str) -> None:
        self.script = list(script)
        self.config = Config(options)
        self.requests: list[pb.FetchLogRequest] = []
        self.closed = False
        self.forgotten: list[object] = []
        self.refreshes = 0
        self.homeless = False
        self.refresh_error: FlussError | None = None

    def leader_node(self, bucket: TableBucket) -> ServerNode | None:
        return None if self.homeless else NODE

    def open_connection_to(self, node: ServerNode) -> ScriptedCluster:
        return self

    def invalidate(self, bucket: TableBucket) -> None:
        self.forgotten.append(bucket)

    def invalidate_server(self, node_id: int) -> None:
        self.forgotten.append(node_id)
        self.homeless = True

    async def refresh(self, tables: list[TablePath], partition_ids: list[int]) -> None:
        self.refreshes += 1
        if self.refresh_error is not None:
            raise self.refresh_error
        self.homeless = False

    async def fetch(self, request: pb.FetchLogRequest) -> FetchAnswer:
        self.requests.append(request)
        item = self.script.pop(0) if self.script else None
        if callable(item):
            item = item(request)
        if item is None:
            await asyncio.get_running_loop().create_future()
        if isinstance(item, FlussError):
            raise item
        assert isinstance(item, FetchAnswer)
        return item

    def asked(self, index: int) -> dict[int, int]:
        """Offsets by bucket of a request."""
        return {entry.bucket_id: entry.fetch_offset for entry in self.requests[index].tables_req[0].buckets_req}


class Scan:
    """A fetcher with its queue, in the running loop."""

    def __init__(self, cluster: ScriptedCluster, *buckets: int, **plan: Any) -> None:
        self.cluster = cluster
        self._loop = asyncio.get_running_loop()
        self.queue = ReadyQueue(self._pump_soon, plan.get("on_skipped"))
        self.fetcher = Fetcher(cluster, BatchDecoder(TABLE, ScanPlan(**plan)), self.queue)  # type: ignore[arg-type]
        self.subscriptions = {bucket: Subscription(TableBucket(5, bucket), 0) for bucket in buckets}
        self.fetcher.add(self.subscriptions.values())

    def _pump_soon(self) -> None:
        self._loop.call_soon_threadsafe(self.fetcher.pump)

    async def ids(self, count: int) -> list[int]:
        found: list[int] = []

        def take() -> bool:
            found.extend(value for rows in self.queue.take() for value in rows.rows.column(0).to_pylist())
            return len(found) >= count

        await eventually(take, f"{count} rows", seen=lambda: found)
        return found


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(body(), patience(60))

    asyncio.run(bounded())


def test_one_fetch_for_all_buckets_then_from_where_they_are() -> None:
    async def body() -> None:
        cluster = ScriptedCluster(answer(b0=records(0, 3), b1=records(0, 2)), answer(b0=records(3, 1)))
        scan = Scan(cluster, 0, 1)
        assert sorted(await scan.ids(6)) == [0, 0, 1, 1, 2, 3]
        await eventually(lambda: len(cluster.requests) == 3, "the third fetch")
        assert [cluster.asked(index) for index in range(3)] == [{0: 0, 1: 0}, {0: 3, 1: 2}, {0: 4, 1: 2}]
        request = cluster.requests[0]
        assert (request.follower_server_id, request.min_bytes, request.max_wait_ms) == (-1, 1, 500)
        await scan.fetcher.close()

    run(body)


def test_a_bucket_does_not_wait_for_the_long_poll_of_others() -> None:
    async def body() -> None:
        cluster = ScriptedCluster(None, answer(b1=records(0, 2)))
        scan = Scan(cluster, 0)
        await eventually(lambda: len(cluster.requests) == 1, "the long poll")
        late = Subscription(TableBucket(5, 1), 0)
        scan.fetcher.add([late])
        assert await scan.ids(2) == [0, 1]
        assert cluster.asked(1) == {1: 0}
        await scan.fetcher.close()

    run(body)


@pytest.mark.parametrize("code", [12, 21, 24, 44, 10, 26, -1])
def test_errors_that_pass_are_not_raised(code: int) -> None:
    async def body() -> None:
        cluster = ScriptedCluster(answer(b0={"error_code": code, "error_message": "x"}), answer(b0=records(0, 1)))
        scan = Scan(cluster, 0)
        assert await scan.ids(1) == [0]
        assert cluster.forgotten == ([TableBucket(5, 0)] if code in (12, 21, 24, 44) else [])
        await scan.fetcher.close()

    run(body)


@pytest.mark.parametrize("code", [19, 3, 48, 999])
def test_other_errors_are_raised_and_asked_again_only_then(code: int) -> None:
    async def body() -> None:
        cluster = ScriptedCluster(
            answer(b0={"error_code": code, "error_message": "so it is"}), answer(b0=records(0, 1))
        )
        scan = Scan(cluster, 0)
        with pytest.raises(FlussError, match="so it is") as caught:
            await scan.ids(1)
        assert caught.value.error_code == code
        assert await scan.ids(1) == [0]
        assert len(cluster.requests) >= 2
        await scan.fetcher.close()

    run(body)


def test_a_lost_connection_means_new_metadata() -> None:
    async def body() -> None:
        cluster = ScriptedCluster(FlussError("gone", 1), answer(b0=records(0, 1)))
        scan = Scan(cluster, 0)
        assert await scan.ids(1) == [0]
        assert (cluster.forgotten, cluster.refreshes) == ([0], 1)
        assert scan.fetcher.last_trouble is not None
        await scan.fetcher.close()

    run(body)


def test_a_table_that_is_gone_is_raised() -> None:
    async def body() -> None:
        cluster = ScriptedCluster()
        cluster.homeless = True
        cluster.refresh_error = FlussError("no such table", 7)
        scan = Scan(cluster, 0, 1)
        with pytest.raises(FlussError, match="no such table"):
            await scan.ids(1)
        await scan.fetcher.close()

    run(body)


def test_rows_that_cannot_be_projected_are_fetched_whole() -> None:
    async def body() -> None:
        cluster = ScriptedCluster(answer(b0={"error_code": 34}), answer(b0=records(0, 2)))
        scan = Scan(cluster, 0, projection=(0,))
        assert await scan.ids(2) == [0, 1]
        await eventually(lambda: len(cluster.requests) == 3, "the third fetch")
        pushed = [request.tables_req[0].projection_pushdown_enabled for request in cluster.requests]
        assert pushed == [True, False, True]  # back to columns: these rows have them
        await scan.fetcher.close()

    run(body)


def test_a_bad_batch_that_a_server_cannot_project_is_fetched_whole_to_be_skipped() -> None:
    async def body() -> None:
        damaged = bytearray(records(0, 2))
        damaged[-1] ^= 1
        skipped: list[BadBatch] = []
        cluster = ScriptedCluster(answer(b0={"error_code": 14}), answer(b0=memoryview(damaged + records(2, 1))))
        scan = Scan(cluster, 0, projection=(0,), on_skipped=skipped.append)
        assert await scan.ids(1) == [2]
        assert [request.tables_req[0].projection_pushdown_enabled for request in cluster.requests[:2]] == [True, False]
        assert [(bad.first_offset, bad.last_offset) for bad in skipped] == [(0, 1)]
        await scan.fetcher.close()

    run(body)


def test_a_bucket_with_a_piece_of_a_batch_is_asked_alone() -> None:
    async def body() -> None:
        whole = records(0, 100)
        cluster = ScriptedCluster(answer(b0=records(0, 1), b1=whole[:100]), answer(b1=whole))
        scan = Scan(cluster, 0, 1)
        assert len(await scan.ids(101)) == 101
        assert cluster.asked(1) == {1: 0}
        await scan.fetcher.close()

    run(body)


def test_filtered_answers_move_the_offset() -> None:
    async def body() -> None:
        cluster = ScriptedCluster(answer(b0={"high_watermark": 9, "filtered_end_offset": 9}))
        scan = Scan(cluster, 0)
        await eventually(lambda: len(cluster.requests) == 2, "the second fetch")
        assert cluster.asked(1) == {0: 9}
        assert scan.queue.take() == []
        assert scan.subscriptions[0].position == 9
        await scan.fetcher.close()

    run(body)


def test_answers_for_ended_subscriptions_are_dropped() -> None:
    async def body() -> None:
        arrived = asyncio.Event()

        def late(request: pb.FetchLogRequest) -> FetchAnswer:
            again = Subscription(TableBucket(5, 0), 7)
            scan.subscriptions[0].active = False
            scan.fetcher.add([again])
            arrived.set()
            return answer(b0=records(0, 3))

        cluster = ScriptedCluster(late, answer(b0=records(7, 1)))
        scan = Scan(cluster, 0)
        assert await scan.ids(1) == [7]
        assert arrived.is_set()
        await scan.fetcher.close()

    run(body)


def test_nothing_is_fetched_that_nobody_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_queue, "MAX_READY_BYTES", 1)
    monkeypatch.setattr(decode_stage, "INLINE_DECODE_BYTES", 0)

    async def body() -> None:
        script = [answer(b0=records(number, 1)) for number in range(10)]
        cluster = ScriptedCluster(*script)
        scan = Scan(cluster, 0)
        await eventually(lambda: len(cluster.requests) >= 2, "one or two answers decoded, one waiting")
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert len(cluster.requests) <= 3
        assert await scan.ids(10) == list(range(10))
        await scan.fetcher.close()

    run(body)


def test_a_server_that_answers_late_is_asked_to_wait_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "MAX_WAIT_OF_LATE_SERVER_MS", 3)

    async def body() -> None:
        cluster = ScriptedCluster(scanner_log_fetch_wait_max_time_ms="30")
        whole_wait = cluster.fetch

        async def late(request: pb.FetchLogRequest) -> FetchAnswer:
            await asyncio.sleep(request.max_wait_ms / 1000 + 0.002)
            cluster.script.append(answer(b0=records(len(cluster.requests), 1)))
            return await whole_wait(request)

        cluster.fetch = late  # type: ignore[method-assign]
        scan = Scan(cluster, 0)
        await scan.ids(4)
        assert [request.max_wait_ms for request in cluster.requests[:4]] == [30, 30, 3, 3]
        await scan.fetcher.close()

    run(body)


class OrderedDecoding:
    """Lets chunks be decoded in the order that a test wants: each waits until the test lets it go on."""

    def __init__(self, scan: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gates = {first: threading.Event() for first in (0, 2, 4)}
        self.begun: list[int] = []
        decode = BatchDecoder.decode

        def gated(decoder: BatchDecoder, view: memoryview, position: int, *rest: Any, **options: Any) -> list[Decoded]:
            self.begun.append(position)
            assert self.gates[position].wait(DEADLINE_SECONDS)
            return decode(decoder, view, position, *rest, **options)

        monkeypatch.setattr(BatchDecoder, "decode", gated)
        self._scan = scan

    async def both_begun(self) -> None:
        await eventually(lambda: sorted(self.begun) == [0, 2], "two chunks are decoded at the same time")


def test_rows_of_a_chunk_wait_for_those_of_the_chunk_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_stage, "INLINE_DECODE_BYTES", 0)

    async def body() -> None:
        cluster = ScriptedCluster(answer(b0=records(0, 2)), answer(b0=records(2, 2)), answer(b0=records(4, 1)))
        scan = Scan(cluster, 0)
        decoding = OrderedDecoding(scan, monkeypatch)
        await decoding.both_begun()
        decoding.gates[2].set()
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert scan.queue.take() == []
        assert decoding.begun.count(4) == 0, "two chunks of a bucket at a time"
        decoding.gates[0].set()
        decoding.gates[4].set()
        assert await scan.ids(5) == [0, 1, 2, 3, 4]
        await scan.fetcher.close()

    run(body)


def test_a_chunk_behind_an_error_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_stage, "INLINE_DECODE_BYTES", 0)

    async def body() -> None:
        broken = memoryview(bytes(records(0, 2)[:-1]) + b"?")
        behind = [answer(b0=records(2, 2)), answer(b0=records(4, 1))]
        cluster = ScriptedCluster(answer(b0=broken), *behind, answer(b0=records(0, 2)), *behind)
        scan = Scan(cluster, 0)
        decoding = OrderedDecoding(scan, monkeypatch)
        await decoding.both_begun()
        await eventually(lambda: scan.subscriptions[0].raw, "a third chunk that waits")
        for gate in decoding.gates.values():
            gate.set()
        with pytest.raises(FlussError, match="checksum"):
            await scan.ids(1)
        assert await scan.ids(5) == [0, 1, 2, 3, 4]
        await scan.fetcher.close()

    run(body)
