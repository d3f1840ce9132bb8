"""The sender with batches of primary-key tables, against a scripted server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pyarrow as pa
import pytest

from fluss.client.net.metadata import ClientTable
from fluss.client.send.acknowledgements import Chunk
from fluss.client.send.bucket_queue import Piece
from fluss.client.send.requests import pauses_by_bucket
from fluss.client.send.sender import Sender
from fluss.client.write.kv_encoding import KvEncoder
from fluss.codec.batches.kv_batch import KvHeader, check_kv_crc, read_kv_header
from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import TablePath
from fluss.model.schema import Column, Schema
from fluss.model.types import IntType
from fluss.protocol import fluss_api_pb2 as pb
from tests.unit.client.send.test_sender import FakeCluster, Owner, settled

SCHEMA = Schema((Column("id", IntType(nullable=False)), Column("x", IntType())), primary_key=("id",))
TABLE = ClientTable(TablePath("db", "t"), 7, 3, TableDescriptor(SCHEMA, bucket_count=2), 0, 0)
WHOLE = KvEncoder(TABLE, 10**6, ())
PART = KvEncoder(TABLE, 10**6, (0,))
ROWS = pa.record_batch([pa.array([b"k"]), pa.array([b"row"])], ["key", "row"])


class PutRequest:
    """A request that waits for its answer."""

    def __init__(self, message: pb.PutKvRequest, records: list[Any]) -> None:
        self.message = message
        self.sent_at = asyncio.get_running_loop().time()
        whole = [piece if isinstance(piece, bytes) else b"".join(piece) for piece in records]
        self.headers: list[KvHeader] = [read_kv_header(data) for data in whole]
        assert all(check_kv_crc(data, header) for data, header in zip(whole, self.headers, strict=True))
        self.future: asyncio.Future[pb.PutKvResponse] = asyncio.get_running_loop().create_future()

    @property
    def targets(self) -> list[int]:
        return list(self.message.target_columns)

    @property
    def sequences(self) -> list[int]:
        return [header.batch_sequence for header in self.headers]

    def answer(self, code: int = 0, pressure: float = 0.0) -> None:
        response = pb.PutKvResponse()
        for entry in self.message.buckets_req:
            result = response.buckets_resp.add(bucket_id=entry.bucket_id)
            if code:
                result.error_code, result.error_message = code, f"scripted {code}"
            if pressure:
                result.pressure = pressure
        self.future.set_result(response)


class KvCluster(FakeCluster):
    """Takes PUT_KV and nothing else."""

    def produce(self, message: Any, records: list[Any]) -> Any:
        assert isinstance(message, pb.PutKvRequest)
        request = PutRequest(message, records)
        self.requests.put_nowait(request)  # type: ignore[arg-type]
        return request.future

    async def next_put(self) -> PutRequest:
        request: Any = await self.next()
        return request  # type: ignore[no-any-return]


def make(sender: Sender, encoder: KvEncoder = WHOLE, bucket_id: int = 0) -> Chunk:
    chunk = Chunk(0, Owner())
    piece = Piece(chunk, encoder, None, bucket_id, ROWS)
    chunk.make_ready([piece])
    sender.memory.add(piece.size_bytes)
    sender.add(piece)
    return chunk


def run(body: Callable[[KvCluster, Sender], Coroutine[Any, Any, None]], **options: str) -> None:
    async def main() -> None:
        cluster = KvCluster(**options)
        sender = Sender(cluster)  # type: ignore[arg-type]
        await body(cluster, sender)
        assert sender.memory.used_bytes == 0

    asyncio.run(main())


async def warm_up(cluster: KvCluster, sender: Sender) -> None:
    """A first write of both buckets, so that the writer id is there."""
    chunks = [make(sender), make(sender, bucket_id=1)]
    sender.send()
    for _ in chunks:
        (await cluster.next_put()).answer()
    await settled(*chunks)


def test_requests_have_one_set_of_columns() -> None:
    async def body(cluster: KvCluster, sender: Sender) -> None:
        await warm_up(cluster, sender)
        chunks = [make(sender, WHOLE, 0), make(sender, PART, 1)]
        sender.send()
        whole, part = await cluster.next_put(), await cluster.next_put()
        assert (whole.targets, part.targets) == ([], [0])
        assert [entry.bucket_id for entry in whole.message.buckets_req] == [0]
        assert [entry.bucket_id for entry in part.message.buckets_req] == [1]
        assert (whole.message.acks, whole.message.table_id) == (-1, 7)
        assert not whole.message.HasField("agg_mode")
        whole.answer()
        part.answer()
        await settled(*chunks)

    run(body)


def test_batches_of_one_bucket_keep_their_order_over_different_columns() -> None:
    async def body(cluster: KvCluster, sender: Sender) -> None:
        await warm_up(cluster, sender)
        encoders = [WHOLE, PART, WHOLE, PART]
        chunks = [make(sender, encoder) for encoder in encoders]
        sender.send()
        first = await cluster.next_put()
        assert first.sequences == [1]
        first.answer()
        requests = [first]
        while len(requests) < 4:
            requests.append(await cluster.next_put())
            requests[-1].answer()
        assert [request.sequences for request in requests] == [[1], [2], [3], [4]]
        assert [request.targets for request in requests] == [[], [0], [], [0]]
        await settled(*chunks)

    run(body, **{"writer.batch-timeout-ms": "0"})


@pytest.mark.parametrize("code", [ErrorCode.STORAGE_BACKPRESSURE_EXCEPTION, ErrorCode.KV_STORAGE_EXCEPTION])
def test_a_server_under_pressure_is_asked_again_later(code: int) -> None:
    async def body(cluster: KvCluster, sender: Sender) -> None:
        await warm_up(cluster, sender)
        chunk = make(sender)
        sender.send()
        request = await cluster.next_put()
        refused_at = asyncio.get_running_loop().time()
        request.answer(code)
        again = await cluster.next_put()
        assert again.sequences == request.sequences == [1]
        pause = 0.05 if code == ErrorCode.STORAGE_BACKPRESSURE_EXCEPTION else 0.005
        assert again.sent_at - refused_at >= pause
        again.answer()
        await settled(chunk)

    run(body, **{"writer.kv-backpressure.max-throttle-ms": "60"})


def test_pressure_slows_the_next_batch_down() -> None:
    async def body(cluster: KvCluster, sender: Sender) -> None:
        await warm_up(cluster, sender)
        chunk = make(sender)
        sender.send()
        request = await cluster.next_put()
        answered_at = asyncio.get_running_loop().time()
        request.answer(pressure=0.5)
        await settled(chunk)
        later = make(sender)
        sender.send()
        request = await cluster.next_put()
        assert request.sent_at - answered_at >= 0.04
        request.answer()
        await settled(later)

    run(body, **{"writer.kv-backpressure.max-throttle-ms": "200"})


def test_pauses() -> None:
    answer = pb.PutKvResponse()
    answer.buckets_resp.add(bucket_id=0)
    answer.buckets_resp.add(bucket_id=1, pressure=0.5)
    answer.buckets_resp.add(bucket_id=2, partition_id=9, pressure=7.0)
    assert pauses_by_bucket(answer, 3.0) == {(None, 1): 0.75, (9, 2): 3.0}
    assert pauses_by_bucket(pb.ProduceLogResponse(), 3.0) == {}


def test_a_refused_batch_fails_alone() -> None:
    async def body(cluster: KvCluster, sender: Sender) -> None:
        await warm_up(cluster, sender)
        bad, good = make(sender, PART), make(sender, bucket_id=1)
        sender.send()
        first, second = await cluster.next_put(), await cluster.next_put()
        first.answer(ErrorCode.INVALID_TARGET_COLUMN)
        second.answer()
        with pytest.raises(FlussError, match="scripted 35"):
            await settled(bad)
        await settled(good)

    run(body)
