"""Which requests lookups make: alone when idle, shared under load, again when a leader moved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fluss.client.lookup import queue as queue_module
from fluss.client.lookup.keys import Place
from fluss.client.lookup.queue import MAX_REQUESTS_IN_FLIGHT_PER_SERVER, Ask, LookupQueue
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket, TablePath
from fluss.protocol import fluss_api_pb2 as pb
from tests.support.waiting import eventually

PATH = TablePath("db", "t")
TABLE_ID = 5


class FakeConnection:
    """Keeps requests until the test answers them."""

    def __init__(self) -> None:
        self.closed = False
        self.calls: list[tuple[Any, asyncio.Future[Any]]] = []

    def call(self, api_key: int, message: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.calls.append((message, future))
        return future

    def answer(self, index: int, error: int | None = None) -> None:
        """Every key is its own value, or every bucket has the error."""
        message, future = self.calls[index]
        response = pb.LookupResponse()
        for item in message.buckets_req:
            result = response.buckets_resp.add(bucket_id=item.bucket_id, error_code=error)
            if item.HasField("partition_id"):
                result.partition_id = item.partition_id
            for key in item.keys if error is None else ():
                result.values.add(values=key if key != b"missing" else None)
        future.set_result(response)


class FakeCluster:
    """One server that leads everything; also the metadata and the I/O thread."""

    def __init__(self) -> None:
        self.closed = False
        self.metadata = self
        self.connection = FakeConnection()
        self.partitions: dict[str, int] = {}
        self.refreshes = 0
        self.table_id = TABLE_ID

    def call_soon(self, callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(callback)

    def leader_node(self, bucket: TableBucket) -> object:
        return self

    def open_connection_to(self, node: object) -> FakeConnection:
        return self.connection

    async def leader(self, bucket: TableBucket, path: TablePath) -> FakeConnection:
        return self.connection

    def invalidate(self, bucket: TableBucket) -> None:
        return

    def forget_partition(self, path: TablePath, name: str) -> None:
        return

    def table(self, path: TablePath) -> Any:
        return self

    async def refresh(self, tables: Any, fresh: bool) -> None:
        self.refreshes += 1

    partition_id: Any = None


def run(body: Callable[[FakeCluster, LookupQueue], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        cluster: Any = FakeCluster()
        await body(cluster, LookupQueue(cluster, cluster, PATH, TABLE_ID, by_prefix=False))

    asyncio.run(asyncio.wait_for(main(), 20))


def ask(queue: LookupQueue, key: bytes, bucket: int = 0, partition: str | None = None) -> asyncio.Future[list[Any]]:
    made = Ask(Place(partition, bucket), (key,), asyncio.get_running_loop())
    queue.submit(made)
    return made.future


async def turns(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_lone_lookup_leaves_at_once() -> None:
    async def body(cluster: FakeCluster, queue: LookupQueue) -> None:
        future = ask(queue, b"a")
        await turns(1)
        assert len(cluster.connection.calls) == 1
        cluster.connection.answer(0)
        assert await future == [b"a"]

    run(body)


def test_what_comes_while_requests_are_out_shares_the_next_one() -> None:
    async def body(cluster: FakeCluster, queue: LookupQueue) -> None:
        futures = []
        for number in range(20):
            futures.append(ask(queue, b"%d" % number, bucket=number % 3))
            await turns()
        calls = cluster.connection.calls
        assert len(calls) == MAX_REQUESTS_IN_FLIGHT_PER_SERVER
        cluster.connection.answer(0)
        await turns()
        assert len(calls) == MAX_REQUESTS_IN_FLIGHT_PER_SERVER + 1
        waited = 20 - MAX_REQUESTS_IN_FLIGHT_PER_SERVER
        assert sum(len(item.keys) for item in calls[-1][0].buckets_req) == waited
        assert len(calls[-1][0].buckets_req) == 3
        for index in range(1, len(calls)):
            cluster.connection.answer(index)
        assert await asyncio.gather(*futures) == [[b"%d" % number] for number in range(20)]

    run(body)


def test_a_key_that_is_not_there() -> None:
    async def body(cluster: FakeCluster, queue: LookupQueue) -> None:
        futures = [ask(queue, key) for key in (b"a", b"missing", b"b")]
        await turns()
        cluster.connection.answer(0)
        assert await asyncio.gather(*futures) == [[b"a"], [None], [b"b"]]

    run(body)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION])
def test_a_moved_leader_is_asked_again_with_fresh_metadata(code: int) -> None:
    async def body(cluster: FakeCluster, queue: LookupQueue) -> None:
        futures = [ask(queue, b"a"), ask(queue, b"b", bucket=1)]
        await turns()
        cluster.connection.answer(0, error=code)

        async def asked_again() -> bool:
            return len(cluster.connection.calls) == 3

        await eventually(asked_again, "both buckets are asked again")
        assert cluster.refreshes >= 1
        cluster.connection.answer(1)
        cluster.connection.answer(2)
        assert await asyncio.gather(*futures) == [[b"a"], [b"b"]]

    run(body)


def test_other_errors_reach_the_caller() -> None:
    async def body(cluster: FakeCluster, queue: LookupQueue) -> None:
        future = ask(queue, b"a")
        await turns()
        cluster.connection.answer(0, error=ErrorCode.AUTHORIZATION_EXCEPTION)
        with pytest.raises(FlussError) as caught:
            await future
        assert caught.value.error_code == ErrorCode.AUTHORIZATION_EXCEPTION

    run(body)


def test_retries_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "MAX_RETRY_SECONDS", 0.01)

    async def body(cluster: FakeCluster, queue: LookupQueue) -> None:
        future = ask(queue, b"a")
        await turns()
        cluster.connection.answer(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        with pytest.raises(FlussError) as caught:
            await future
        assert caught.value.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(body)


def test_a_table_that_was_made_anew() -> None:
    async def body(cluster: FakeCluster, queue: LookupQueue) -> None:
        cluster.table_id = TABLE_ID + 1
        future = ask(queue, b"a")
        await turns()
        cluster.connection.answer(0, error=ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION)
        with pytest.raises(FlussError, match="created again"):
            await future

    run(body)


def test_callers_wait_when_too_many_are_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "MAX_PENDING_ASKS", 10)
    monkeypatch.setattr(queue_module, "MAX_ACTIVE_KEYS", 4)

    async def body(cluster: FakeCluster, queue: LookupQueue) -> None:
        most = 0

        async def one(number: int) -> list[Any]:
            nonlocal most
            await queue.room()
            future = ask(queue, b"%d" % number)
            most = max(most, len(queue._pending))
            return await future

        lookups = [asyncio.ensure_future(one(number)) for number in range(100)]
        answered = 0
        while not all(lookup.done() for lookup in lookups):
            await turns(1)
            while answered < len(cluster.connection.calls):
                cluster.connection.answer(answered)
                answered += 1
        assert [lookup.result() for lookup in lookups] == [[b"%d" % number] for number in range(100)]
        assert most <= 10

    run(body)


def test_a_cancelled_lookup_does_not_disturb_the_others() -> None:
    async def body(cluster: FakeCluster, queue: LookupQueue) -> None:
        first, second = ask(queue, b"a"), ask(queue, b"b")
        await turns()
        first.cancel()
        cluster.connection.answer(0)
        assert await second == [b"b"]

    run(body)
