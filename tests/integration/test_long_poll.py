"""Waiting fetches: woken at once by an append or a drop, and otherwise patient."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.tablet.log import fetch
from fluss.server.tablet.log.fetch_reader import FetchAnswer, read_available
from tests.support.servers.log_cluster import LogCluster, arrow_batch, ids_of
from tools.servers.wire_client import WireClient
from tools.waiting import patience

# Longer than any test, and far longer than a client waits for an answer: who is answered was woken.
LONG_WAIT_MS = 3_600_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogCluster]:
    with LogCluster(tmp_path_factory.mktemp("server")) as cluster:
        yield cluster


def fetch_request(
    table: int, offset: int = 0, buckets: tuple[int, ...] = (0,), min_bytes: int = 1, wait_ms: int = LONG_WAIT_MS
) -> pb.FetchLogRequest:
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 20, min_bytes=min_bytes, max_wait_ms=wait_ms)
    wanted = request.tables_req.add(table_id=table, projection_pushdown_enabled=False)
    for bucket in buckets:
        wanted.buckets_req.add(bucket_id=bucket, fetch_offset=offset, max_fetch_bytes=1 << 20)
    return request


def park(client: WireClient, request: pb.FetchLogRequest) -> int:
    """Send a fetch that has to wait; a request behind it proves that it was taken up."""
    request_id = client.send(ApiKey.FETCH_LOG, request)
    client.api_versions()
    return request_id


def test_an_append_wakes_a_waiting_fetch_at_once(cluster: LogCluster) -> None:
    table = cluster.create_table("wake", bucket_count=2)
    cluster.tablet.produce(table, 0, arrow_batch([0]))
    with cluster.another_client() as reader:
        for number in range(1, 20):
            waiting = park(reader, fetch_request(table, number))
            cluster.tablet.produce(table, 0, arrow_batch([number]))
            found = reader.receive(waiting).tables_resp[0].buckets_resp[0]
            assert ids_of(found.records) == [number]
        waiting = park(reader, fetch_request(table, 0, buckets=(1,)))
        cluster.tablet.produce(table, 1, arrow_batch([5]))
        assert ids_of(reader.receive(waiting).tables_resp[0].buckets_resp[0].records) == [5]


def test_a_fetch_without_min_bytes_never_waits(cluster: LogCluster) -> None:
    table = cluster.create_table("no_min")
    request = fetch_request(table)
    request.ClearField("min_bytes")
    found = cluster.tablet.call(ApiKey.FETCH_LOG, request).tables_resp[0].buckets_resp[0]
    assert found.HasField("records")


def test_the_wait_ends_with_an_empty_answer(cluster: LogCluster) -> None:
    table = cluster.create_table("patience")
    started = time.monotonic()
    found = cluster.tablet.call(ApiKey.FETCH_LOG, fetch_request(table, wait_ms=200)).tables_resp[0].buckets_resp[0]
    assert found.records == b""
    assert found.high_watermark == 0
    assert time.monotonic() - started >= 0.19
    default_wait = fetch_request(table)
    default_wait.ClearField("max_wait_ms")
    started = time.monotonic()
    cluster.tablet.call(ApiKey.FETCH_LOG, default_wait)
    assert time.monotonic() - started >= 0.09


def test_min_bytes_are_waited_for(cluster: LogCluster) -> None:
    table = cluster.create_table("min_bytes")
    batch = arrow_batch([1])
    with cluster.another_client() as reader:
        waiting = park(reader, fetch_request(table, min_bytes=3 * len(batch)))
        for _ in range(2):
            cluster.tablet.produce(table, 0, batch)
        reader.api_versions()
        assert waiting not in reader._early, "answered with too little"
        cluster.tablet.produce(table, 0, batch)
        assert len(ids_of(reader.receive(waiting).tables_resp[0].buckets_resp[0].records)) == 3


def test_a_wait_for_more_bytes_than_a_segment_holds_ends_with_the_segment(tmp_path: Path) -> None:
    """Nothing is ever added to a segment that is full: waiting on would be in vain."""
    batch = arrow_batch([1])
    with LogCluster(tmp_path, log_segment_file_size=3 * len(batch)) as cluster:
        table = cluster.create_table("rolled")
        with cluster.another_client() as reader:
            waiting = park(reader, fetch_request(table, min_bytes=1 << 19))
            for _ in range(4):
                cluster.tablet.produce(table, 0, batch)
            found = reader.receive(waiting).tables_resp[0].buckets_resp[0]
            assert ids_of(found.records) == [1, 1, 1]


def test_thousands_that_wait_for_more_do_not_slow_writers_down(
    cluster: LogCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append costs a waiting fetch nothing as long as it cannot be enough: it does not look at the log."""
    looks = []

    def counted_look(*arguments: Any, **more: Any) -> FetchAnswer:
        looks.append(arguments)
        return read_available(*arguments, **more)

    table = cluster.create_table("patient")
    readers = [cluster.another_client() for _ in range(10)]
    try:
        for reader in readers:
            for _ in range(200):
                reader.send(ApiKey.FETCH_LOG, fetch_request(table, min_bytes=1 << 19, wait_ms=LONG_WAIT_MS))
            reader.api_versions()
        monkeypatch.setattr(fetch, "read_available", counted_look)
        for number in range(50):
            cluster.tablet.produce(table, 0, arrow_batch([number]))
        assert looks == []
        cluster.drop_table("patient")
        assert readers[0].receive(0).tables_resp[0].buckets_resp[0].error_code == 21
    finally:
        for reader in readers:
            reader.close()


def test_quiet_errors_wait_with_the_others_and_loud_ones_do_not(cluster: LogCluster) -> None:
    table = cluster.create_table("mixed", bucket_count=2)
    with cluster.another_client() as reader:
        waiting = park(reader, fetch_request(table, buckets=(0, 9)))
        assert waiting not in reader._early
        cluster.tablet.produce(table, 0, arrow_batch([1]))
        first, second = reader.receive(waiting).tables_resp[0].buckets_resp
        assert ids_of(first.records) == [1]
        assert second.error_code == 21
        request = fetch_request(table, offset=1)
        request.tables_req[0].buckets_req.add(bucket_id=1, fetch_offset=99, max_fetch_bytes=10)
        found = reader.call(ApiKey.FETCH_LOG, request).tables_resp[0].buckets_resp
        assert [item.error_code for item in found] == [0, 19]
        only_unknown = fetch_request(table, buckets=(7,))
        assert reader.call(ApiKey.FETCH_LOG, only_unknown).tables_resp[0].buckets_resp[0].error_code == 21


def test_a_drop_ends_the_wait(cluster: LogCluster) -> None:
    table = cluster.create_table("dropped")
    cluster.tablet.produce(table, 0, arrow_batch([1]))
    with cluster.another_client() as reader:
        waiting = park(reader, fetch_request(table, offset=1))
        cluster.drop_table("dropped")
        assert reader.receive(waiting).tables_resp[0].buckets_resp[0].error_code == 21
    assert cluster.tablet.produce(table, 0, arrow_batch([1])).error_code == 21
    assert cluster.tablet.fetch(table, 0, 0).error_code == 21


def test_a_recreated_table_is_empty_and_has_its_own_id(cluster: LogCluster) -> None:
    old = cluster.create_table("again")
    cluster.tablet.produce(old, 0, arrow_batch([1]))
    cluster.drop_table("again")
    new = cluster.create_table("again")
    assert new != old
    assert cluster.latest(new) == 0
    assert cluster.tablet.produce(old, 0, arrow_batch([1])).error_code == 21


def test_a_lost_connection_takes_its_waiting_fetch_along(cluster: LogCluster) -> None:
    table = cluster.create_table("lost")
    for _ in range(50):
        with cluster.another_client() as reader:
            park(reader, fetch_request(table))
    # No reader is left to wake; the server must continue to serve.
    assert cluster.tablet.produce(table, 0, arrow_batch([1])).base_offset == 0


def test_many_waiting_fetches_are_all_woken_by_one_append(cluster: LogCluster) -> None:
    table = cluster.create_table("many")
    readers = [cluster.another_client() for _ in range(20)]
    try:
        waiting = [park(reader, fetch_request(table)) for reader in readers]
        cluster.tablet.produce(table, 0, arrow_batch([3]))
        for reader, request_id in zip(readers, waiting, strict=True):
            assert ids_of(reader.receive(request_id).tables_resp[0].buckets_resp[0].records) == [3]
    finally:
        for reader in readers:
            reader.close()


def test_readers_and_writers_together_lose_nothing(cluster: LogCluster) -> None:
    table = cluster.create_table("together")
    total = 300
    seen: list[int] = []

    def read() -> None:
        with cluster.another_client() as reader:
            offset = 0
            while offset < total:
                answer = reader.call(ApiKey.FETCH_LOG, fetch_request(table, offset))
                found = ids_of(answer.tables_resp[0].buckets_resp[0].records)
                seen.extend(found)
                offset += len(found)

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(total):
        cluster.tablet.produce(table, 0, arrow_batch([number]))
    thread.join(patience(60))
    assert not thread.is_alive()
    assert seen == list(range(total))
