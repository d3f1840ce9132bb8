"""Which requests lookups make: alone when idle, shared under load, again when a leader moved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fluss.client.keys import lookup_queue as queue_module
from fluss.client.keys.lookup_keys import Place
from fluss.client.keys.lookup_queue import MAX_REQUESTS_IN_FLIGHT_PER_SERVER, LookupQueue
from fluss.client.keys.lookup_request import Ask
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket, TablePath
from fluss.protocol import fluss_api_pb2 as pb
from tools.waiting import eventually, patience

PATH = TablePath("db", "t")
TABLE_ID = 5


class FakeConnection:
    """Keeps requests until the test answers them."""

    def __init__(self) -> None:
        self.closed = False
        self.calls: list[tuple[Any, asyncio.Future[Any]]] = []
        self.sizes: list[int] = []

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

    def answer_within(self, limit: int) -> None:
        """Answer everything that is out; buckets whose keys no longer fit into so many bytes get code 13."""
        for message, future in self.calls:
            response = pb.LookupResponse()
            left = limit
            for item in message.buckets_req:
                result = response.buckets_resp.add(bucket_id=item.bucket_id)
                size = sum(len(key) for key in item.keys)
                if size > left:
                    result.error_code = ErrorCode.RECORD_TOO_LARGE_EXCEPTION
                    continue
                left -= size
                for key in item.keys:
                    result.values.add(values=key)
            self.sizes.append(sum(len(item.keys) for item in message.buckets_req))
            future.set_result(response)
        self.calls.clear()


class FakeCluster:
    """One server that leads everything; also the metadata and the I/O thread."""

    def __init__(self) -> None:
        self.closed = False
        self.metadata = self
        self.connection = FakeConnection()
        self.partitions: dict[str, int] = {}
        self.refreshes = 0
        self.refresh_errors: list[FlussError] = []
        self.leader_errors: list[FlussError] = []
        self.table_id = TABLE_ID

    def call_soon(self, callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(callback)

    def leader_node(self, bucket: TableBucket) -> object:
        return self

    def open_connection_to(self, node: object) -> FakeConnection:
        return self.connection

    async def leader(self, bucket: TableBucket, path: TablePath) -> FakeConnection:
        if self.leader_errors:
            raise self.leader_errors.pop()
        return self.connection

    def invalidate(self, bucket: TableBucket) -> None:
        return

    def forget_partition(self, path: TablePath, name: str) -> None:
        return

    def table(self, path: TablePath) -> Any:
        return self

    async def refresh(self, tables: Any, fresh: bool) -> None:
        self.refreshes += 1
        if self.refresh_errors:
            raise self.refresh_errors.pop()

    partition_id: Any = None


def run(body: Callable[[FakeCluster, LookupQueue], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        cluster: Any = FakeCluster()
        await body(cluster, LookupQueue(cluster, cluster, PATH, TABLE_ID, by_prefix=False))

    asyncio.run(asyncio.wait_for(main(), patience(60)))


def ask(queue: LookupQueue, *keys: bytes, bucket: int = 0, partition: str | None = None) -> asyncio.Future[list[Any]]:
    made = Ask(Place(partition, bucket), keys, asyncio.get_running_loop())
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


@pytest.mark.parametrize("place", ["refresh_errors", "leader_errors"])
def test_a_leader_that_cannot_be_found_for_the_moment_is_looked_for_again(place: str) -> None:
    async def body(cluster: FakeCluster, queue: LookupQueue) -> None:
        futures = [ask(queue, b"a"), ask(queue, b"b")]
        await turns()
        getattr(cluster, place).extend(
            FlussError("no answer", code)
            for code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIME_OUT, ErrorCode.NETWORK_EXCEPTION)
        )
        cluster.connection.answer(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)

        async def asked_again() -> bool:
            return len(cluster.connection.calls) == 2

        await eventually(asked_again, "the bucket is asked again")
        assert cluster.refreshes == 4
        cluster.connection.answer(1)
        assert await asyncio.gather(*futures) == [[b"a"], [b"b"]]

    run(body)


def test_looking_for_a_leader_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "MAX_RETRY_SECONDS", 0.05)

    async def body(cluster: FakeCluster, queue: LookupQueue) -> None:
        future = ask(queue, b"a")
        await turns()
        cluster.refresh_errors.extend(FlussError("no answer", ErrorCode.NETWORK_EXCEPTION) for _ in range(20))
        cluster.connection.answer(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        with pytest.raises(FlussError, match="no answer"):
            await future

    run(body)


def test_the_leader_is_not_looked_for_when_that_is_no_use() -> None:
    async def body(cluster: FakeCluster, queue: LookupQueue) -> None:
        future = ask(queue, b"a")
        await turns()
        cluster.refresh_errors.append(FlussError("not for you", ErrorCode.AUTHORIZATION_EXCEPTION))
        cluster.connection.answer(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        with pytest.raises(FlussError, match="not for you"):
            await future
        assert cluster.refreshes == 1

    run(body)


def test_lookups_that_are_too_large_together_are_asked_for_in_smaller_requests() -> None:
    async def body(cluster: FakeCluster, queue: LookupQueue) -> None:
        one_each = [ask(queue, bytes([number]) * 10, bucket=number % 3) for number in range(20)]
        many = [bytes([number]) * 10 for number in range(100, 164)]
        together = ask(queue, *many)
        alone_too_large = ask(queue, b"x" * 101)
        await turns()
        assert len(cluster.connection.calls) == 1
        while not all(future.done() for future in (*one_each, together, alone_too_large)):
            cluster.connection.answer_within(100)
            await turns()
        assert [future.result() for future in one_each] == [[bytes([number]) * 10] for number in range(20)]
        assert together.result() == many
        with pytest.raises(FlussError) as caught:
            alone_too_large.result()
        assert caught.value.error_code == ErrorCode.RECORD_TOO_LARGE_EXCEPTION
        assert cluster.connection.sizes[0] == 85
        assert max(cluster.connection.sizes[1:]) <= 42

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
