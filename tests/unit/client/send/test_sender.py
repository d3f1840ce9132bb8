"""The sender against a scripted server: answers of all kinds, in any order, lost ones too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pyarrow as pa
import pytest

from fluss.client.net.metadata import ClientTable, MetadataCache
from fluss.client.send.acknowledgements import Chunk, PendingResult
from fluss.client.send.answer_rules import MAX_WRITER_RESETS_PER_BATCH
from fluss.client.send.bucket_queue import Piece
from fluss.client.send.log_encoding import TableEncoder
from fluss.client.send.sender import Sender
from fluss.codec.arrow.types import to_arrow_schema
from fluss.codec.batches.log_batch import check_crc, read_header
from fluss.config import Config
from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import TableBucket, TablePath
from fluss.model.schema import Column, Schema
from fluss.model.types import IntType
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tools.waiting import patience

SCHEMA = Schema((Column("id", IntType()),))
TABLE = ClientTable(TablePath("db", "t"), 7, 1, TableDescriptor(SCHEMA, bucket_count=2), 0, 0)
ENCODER = TableEncoder(TABLE, 10**6)
DEADLINE_SECONDS = patience(60.0)


class Request:
    """A request that waits for its answer."""

    def __init__(self, message: pb.ProduceLogRequest, records: list[Any]) -> None:
        self.message = message
        whole = [piece if isinstance(piece, bytes) else b"".join(piece) for piece in records]
        self.headers = [read_header(data) for data in whole]
        assert all(check_crc(data, 0, header) for data, header in zip(whole, self.headers, strict=True))
        self.future: asyncio.Future[pb.ProduceLogResponse] = asyncio.get_running_loop().create_future()

    @property
    def numbers(self) -> list[tuple[int, int, int]]:
        """Bucket, writer id and sequence of every batch."""
        buckets = [entry.bucket_id for entry in self.message.buckets_req]
        return [(b, h.writer_id, h.batch_sequence) for b, h in zip(buckets, self.headers, strict=True)]

    def answer(self, code: int = 0, *, leave_out: bool = False) -> None:
        response = pb.ProduceLogResponse()
        for entry in self.message.buckets_req:
            if not leave_out:
                result = response.buckets_resp.add(bucket_id=entry.bucket_id)
                if code:
                    result.error_code, result.error_message = code, f"scripted {code}"
        self.future.set_result(response)

    def lose(self) -> None:
        self.future.set_exception(FlussError("connection lost", ErrorCode.NETWORK_EXCEPTION))


class FakeCluster:
    """One server that leads every bucket and does what the test says. It is its own connection."""

    def __init__(self, **options: str) -> None:
        self.config = Config(options)
        self.metadata = MetadataCache()
        self.closed = False
        self.is_writable = True
        self.requests: asyncio.Queue[Request] = asyncio.Queue()
        self.writer_ids = 0
        self.invalidated: list[TableBucket] = []
        self.leader_error: FlussError | None = None

    def leader_node(self, bucket: TableBucket) -> Any:
        return self if self.leader_error is None else None

    def open_connection_to(self, node: Any) -> Any:
        return node

    async def leader(self, bucket: TableBucket, path: TablePath) -> Any:
        if self.leader_error is not None:
            raise self.leader_error
        return self

    async def refresh(self, **what: Any) -> None: ...

    async def any_tablet(self) -> Any:
        return self

    def invalidate(self, bucket: TableBucket) -> None:
        self.invalidated.append(bucket)

    async def call(self, api_key: int, request: Any) -> Any:
        assert api_key == ApiKey.INIT_WRITER
        assert [path.table_name for path in request.table_path] == ["t"]
        self.writer_ids += 1
        return pb.InitWriterResponse(writer_id=99 + self.writer_ids)

    def produce(self, message: pb.ProduceLogRequest, records: list[Any]) -> Any:
        request = Request(message, records)
        self.requests.put_nowait(request)
        return request.future

    async def next(self) -> Request:
        return await asyncio.wait_for(self.requests.get(), DEADLINE_SECONDS)


class Owner:
    """Of chunks: nothing to do."""

    def on_settled(self, chunk: Chunk) -> None: ...
    def check_usable(self) -> None: ...


def write(sender: Sender, bucket_id: int = 0) -> Chunk:
    """Make and send."""
    chunk = make(sender, bucket_id)
    sender.send()
    return chunk


def make(sender: Sender, bucket_id: int = 0) -> Chunk:
    """One encoded row, a batch of its own."""
    rows = pa.record_batch([pa.array([1], pa.int32())], to_arrow_schema(SCHEMA))
    chunk = Chunk(0, Owner())
    piece = Piece(chunk, ENCODER, None, bucket_id, rows)
    piece.data = [ENCODER.encode(rows)]
    chunk.make_ready([piece])
    sender.memory.add(piece.size_bytes)
    sender.add(piece)
    return chunk


async def settled(*chunks: Chunk) -> None:
    async def wait() -> None:
        await PendingResult(chunks, "wait()")

    await asyncio.wait_for(wait(), DEADLINE_SECONDS)


def run(body: Callable[[FakeCluster, Sender], Coroutine[Any, Any, None]], **options: str) -> None:
    async def main() -> None:
        cluster = FakeCluster(**options)
        sender = Sender(cluster)  # type: ignore[arg-type]
        await body(cluster, sender)
        assert sender.memory.used_bytes == 0

    asyncio.run(main())


def test_five_batches_in_flight_and_a_writer_id_for_all_buckets() -> None:
    async def body(cluster: FakeCluster, sender: Sender) -> None:
        first = [write(sender), write(sender, 1)]
        for _ in first:
            (await cluster.next()).answer()
        await settled(*first)
        other = make(sender, 1)
        chunks = [make(sender) for _ in range(6)]
        sender.send()
        requests = [await cluster.next() for _ in range(5)]
        assert requests[0].numbers == [(1, 100, 1), (0, 100, 1)]  # one request, a batch of each bucket
        assert [request.numbers[0] for request in requests[1:]] == [(0, 100, n) for n in range(2, 6)]
        assert requests[0].message.acks == -1
        await asyncio.sleep(0)
        assert cluster.requests.empty()
        requests[0].answer()
        await settled(chunks[0], other)
        last = await cluster.next()
        assert last.numbers == [(0, 100, 6)]
        for request in (*requests[1:], last):
            request.answer()
        await settled(*chunks)
        assert cluster.writer_ids == 1

    run(body)


def test_lost_answers_are_asked_for_again_in_order() -> None:
    async def body(cluster: FakeCluster, sender: Sender) -> None:
        chunks = [write(sender) for _ in range(4)]
        first, second, third, fourth = [await cluster.next() for _ in range(4)]
        second.lose()
        third.lose()
        fourth.lose()
        await asyncio.sleep(0)
        assert cluster.requests.empty()  # silent until the first one is answered as well
        first.answer()
        again = [await cluster.next() for _ in range(3)]
        assert [request.numbers[0][2] for request in again] == [1, 2, 3]
        again[0].answer(32)  # the server had it already
        again[2].answer()
        again[1].answer(31)  # a later one is acknowledged, so this one is there as well
        await settled(*chunks)
        assert cluster.invalidated

    run(body)


def test_batches_behind_a_missing_one_are_sent_again_with_it() -> None:
    async def body(cluster: FakeCluster, sender: Sender) -> None:
        chunks = [write(sender) for _ in range(3)]
        requests = [await cluster.next() for _ in range(3)]
        requests[0].answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        requests[1].answer(31)
        requests[2].answer(31)
        again = [await cluster.next() for _ in range(3)]
        assert [request.numbers[0] for request in again] == [(0, 100, 0), (0, 100, 1), (0, 100, 2)]
        for request in again:
            request.answer()
        await settled(*chunks)

    run(body)


def test_a_refused_batch_fails_alone_and_the_others_move_up() -> None:
    async def body(cluster: FakeCluster, sender: Sender) -> None:
        good, bad, later = write(sender), write(sender), write(sender)
        requests = [await cluster.next() for _ in range(3)]
        requests[0].answer()
        requests[1].answer(ErrorCode.AUTHORIZATION_EXCEPTION)
        requests[2].answer(31)
        again = await cluster.next()
        assert again.numbers == [(0, 100, 1)]
        again.answer()
        await settled(good, later)
        with pytest.raises(FlussError, match="scripted 48") as caught:
            await settled(bad)
        assert caught.value.error_code == ErrorCode.AUTHORIZATION_EXCEPTION

    run(body)


def test_a_forgotten_writer_starts_again_with_a_new_id() -> None:
    async def body(cluster: FakeCluster, sender: Sender) -> None:
        chunks = [write(sender), write(sender)]
        requests = [await cluster.next(), await cluster.next()]
        requests[0].answer(31)  # nothing is acknowledged, so this is the next sequence: the server lost its state
        requests[1].answer(31)
        again = [await cluster.next(), await cluster.next()]
        assert [request.numbers[0] for request in again] == [(0, 101, 0), (0, 101, 1)]
        for request in again:
            request.answer()
        await settled(*chunks)

    run(body)


def test_rows_in_doubt_are_reported_and_not_written_twice() -> None:
    async def body(cluster: FakeCluster, sender: Sender) -> None:
        first, second = write(sender), write(sender)
        for request in [await cluster.next(), await cluster.next()]:
            request.lose()
        for _ in range(1 + MAX_WRITER_RESETS_PER_BATCH):
            for request in [await cluster.next(), await cluster.next()]:
                request.answer(31)
        with pytest.raises(FlussError, match="scripted 31"):
            await settled(first)
        with pytest.raises(FlussError, match="may or may not have been written"):
            await settled(second)
        third = write(sender)
        request = await cluster.next()
        assert request.numbers == [(0, 101, 0)]
        request.answer()
        await settled(third)

    run(body)


def test_a_server_that_remembers_only_the_last_batch_has_all_before_it() -> None:
    async def body(cluster: FakeCluster, sender: Sender) -> None:
        chunks = [write(sender) for _ in range(3)]
        for request in [await cluster.next() for _ in chunks]:
            request.lose()
        again = [await cluster.next() for _ in chunks]
        for request, code in zip(again, (31, 31, 0), strict=True):
            request.answer(code)
        for request in [await cluster.next(), await cluster.next()]:
            request.answer(31)
        await settled(*chunks)
        assert cluster.requests.empty()

    run(body)


def test_a_bucket_that_the_answer_leaves_out_has_failed() -> None:
    async def body(cluster: FakeCluster, sender: Sender) -> None:
        chunk = write(sender)
        (await cluster.next()).answer(leave_out=True)
        with pytest.raises(FlussError, match="does not contain the bucket") as caught:
            await settled(chunk)
        assert caught.value.error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    run(body)


def test_retries_end() -> None:
    async def body(cluster: FakeCluster, sender: Sender) -> None:
        chunk = write(sender)
        for _ in range(3):
            (await cluster.next()).answer(ErrorCode.NOT_ENOUGH_REPLICAS_EXCEPTION)
        with pytest.raises(FlussError) as caught:
            await settled(chunk)
        assert caught.value.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_EXCEPTION

    run(body, **{"writer.retries": "2"})


def test_a_batch_that_is_bad_itself_fails_and_those_behind_it_go_on() -> None:
    async def body(cluster: FakeCluster, sender: Sender) -> None:
        flipped = write(sender)
        for code in (14, 14, 0):
            (await cluster.next()).answer(code)
        await settled(flipped)
        bad, later = write(sender), write(sender)
        for _ in range(3):
            refused, behind = await cluster.next(), await cluster.next()
            assert refused.numbers == [(0, 100, 1)]
            refused.answer(ErrorCode.CORRUPT_RECORD_EXCEPTION)
            behind.answer(31)
        (moved_up := await cluster.next()).answer()
        assert moved_up.numbers == [(0, 100, 1)]
        await settled(later)
        with pytest.raises(FlussError, match="scripted 14"):
            await settled(bad)

    run(body)


def test_without_idempotence_nothing_is_numbered() -> None:
    async def body(cluster: FakeCluster, sender: Sender) -> None:
        chunk = write(sender)
        request = await cluster.next()
        assert request.numbers == [(0, -1, -1)]
        assert request.message.acks == 1
        request.answer()
        await settled(chunk)
        assert cluster.writer_ids == 0

    run(body, **{"writer.enable-idempotence": "false", "writer.acks": "1"})


def test_a_bucket_without_leader_is_tried_again_or_fails() -> None:
    async def body(cluster: FakeCluster, sender: Sender) -> None:
        cluster.leader_error = FlussError("no leader", ErrorCode.LEADER_NOT_AVAILABLE_EXCEPTION)
        chunk = write(sender)
        await asyncio.sleep(0.05)
        assert not chunk.settled
        cluster.leader_error = None
        (await cluster.next()).answer()
        await settled(chunk)
        cluster.leader_error = FlussError("no table", ErrorCode.TABLE_NOT_EXIST)
        with pytest.raises(FlussError, match="no table"):
            await settled(write(sender))

    run(body)


def test_what_comes_after_a_batch_that_was_given_up_is_not_taken_for_a_repetition() -> None:
    async def body(cluster: FakeCluster, sender: Sender) -> None:
        first = write(sender)
        request = await cluster.next()
        assert request.numbers == [(0, 100, 0)]
        request.answer()
        await settled(first)
        second = write(sender)
        cluster.leader_error = FlussError("login refused", ErrorCode.AUTHENTICATE_EXCEPTION)
        (await cluster.next()).lose()
        with pytest.raises(FlussError, match="login refused"):
            await settled(second)
        cluster.leader_error = None
        third = write(sender)
        request = await cluster.next()
        assert request.numbers == [(0, 101, 0)], "sequence 0 of writer 100 is the first row"
        request.answer()
        await settled(third)

    run(body)


def test_closing_waits_a_bounded_time_and_tells_what_was_not_written() -> None:
    async def body(cluster: FakeCluster, sender: Sender) -> None:
        chunk = write(sender)
        request = await cluster.next()
        request.answer(ErrorCode.PARTITION_NOT_EXISTS)
        await asyncio.sleep(0)
        assert chunk.settled
        sender.unreported.append(chunk)
        with pytest.raises(FlussError, match="scripted 36"):
            await sender.close()
        late = write(sender)
        with pytest.raises(FlussError, match="the connection is closed"):
            await settled(late)
        with pytest.raises(FlussError, match="closed"):
            await sender.memory.room()

    run(body)
