"""The stops of connections. tests/integration/test_log_tables tests over the wire that fetches respect them."""

from __future__ import annotations

import gc

import pytest

from fluss.model.paths import TableBucket
from fluss.protocol.api_keys import ApiKey
from fluss.server.runtime.handlers import RequestContext
from fluss.server.tablet.log import read_stops
from fluss.server.tablet.log.read_stops import NO_STOP, ConnectionStops, ReadStops

BUCKET = TableBucket(1, None, 0)
START, END = 3, 40


class Connection:
    """Anything that can be referred to weakly."""


def of(stops: ReadStops, connection: object | None) -> ConnectionStops:
    return stops.of(RequestContext(ApiKey.FETCH_LOG, connection=connection))


def test_the_stop_is_the_highest_end_that_was_sent() -> None:
    stops = ConnectionStops()
    stops.raise_to(BUCKET, 20)
    stops.raise_to(BUCKET, 10)
    assert stops.stop(BUCKET, START, START, END) == 20


def test_a_read_from_the_start_has_no_stop() -> None:
    stops = ConnectionStops()
    assert stops.stop(BUCKET, START, START, END) == NO_STOP
    assert stops.stop(BUCKET, 30, START, END) == NO_STOP, "the same read goes on"


def test_a_read_from_the_middle_may_continue_a_bounded_read() -> None:
    stops = ConnectionStops()
    assert stops.stop(BUCKET, 10, START, END) == END
    assert stops.stop(BUCKET, 30, START, END + 5) == END


def test_stops_belong_to_one_connection_and_go_with_it() -> None:
    stops = ReadStops()
    first, second = Connection(), Connection()
    of(stops, first).raise_to(BUCKET, 20)
    assert of(stops, first).stop(BUCKET, START, START, END) == 20
    assert of(stops, second).stop(BUCKET, START, START, END) == NO_STOP
    assert of(stops, None).stop(BUCKET, START, START, END) == NO_STOP
    del first, second
    gc.collect()
    assert not stops._connections


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_stops, "MAX_STOPS_PER_CONNECTION", 2)
    stops = ConnectionStops()
    for bucket_id in range(3):
        stops.raise_to(TableBucket(1, None, bucket_id), 20)
    assert len(stops._stops) == 2
    assert stops.stop(TableBucket(1, None, 0), 10, START, END) == END, "as after a reconnect"
