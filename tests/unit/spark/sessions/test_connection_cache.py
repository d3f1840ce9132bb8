"""Connections that a Spark process keeps: shared, bounded, closed when idle, and never used by a forked child."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fluss import ErrorCode, FlussError
from fluss.client.calls.admin import AdminCalls
from fluss.spark.options.parsing import ClientOptions, parse_options
from fluss.spark.sessions import connection_cache
from fluss.spark.sessions.connection_cache import lease, open_table
from tests.support.servers.targets import running_target
from tools.waiting import patience, wait_until


@pytest.fixture
def options() -> Iterator[ClientOptions]:
    """Client options of a server; no connection is open before or after."""
    connection_cache.close_all()
    yield ClientOptions(running_target("embedded").bootstrap_servers)
    connection_cache.close_all()


def variant(options: ClientOptions, number: int) -> ClientOptions:
    return ClientOptions(options.bootstrap_servers, (("client.request-timeout", str(50_000 + number)),))


def test_one_connection_for_equal_options(options: ClientOptions) -> None:
    with lease(options) as first, lease(ClientOptions(options.bootstrap_servers)) as second:
        assert first is second
    with lease(options) as again, lease(variant(options, 1)) as other:
        assert again is first
        assert other is not first
        assert other.config.request_timeout_ms == 50_001


def test_many_threads_share_it(options: ClientOptions) -> None:
    found: list[Any] = []
    start = threading.Barrier(8)

    def take() -> None:
        start.wait(patience(60))
        with lease(options) as connection:
            found.append(connection)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(60))
    assert len(found) == 8
    assert len(connection_cache._entries) == 1
    assert not connection_cache._entries[options].connection.is_closed


def test_idle_ones_are_closed_and_leased_ones_are_not(options: ClientOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_cache, "IDLE_CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(connection_cache, "_sweeper", None)  # the one of an earlier test, with its interval
    with lease(options) as kept:
        with lease(variant(options, 1)) as idle:
            pass
        wait_until(lambda: idle.is_closed, "the idle connection is closed")
        assert not kept.is_closed
    wait_until(lambda: kept.is_closed, "the other one too")
    assert connection_cache._entries == {}


def test_the_number_of_open_connections_is_limited(options: ClientOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_cache, "MAX_IDLE_CONNECTIONS", 2)
    opened = []
    for number in range(4):
        with lease(variant(options, number)) as connection:
            opened.append(connection)
    assert [connection.is_closed for connection in opened] == [True, True, False, False]


def _in_child(bootstrap_servers: str, results: Any) -> None:
    """In a forked process: open a new connection, and do not use the parent's."""
    with lease(ClientOptions(bootstrap_servers)) as connection:
        session = connection._session
        databases = session.run(AdminCalls(session.cluster).list_databases(), 30)
        results.put((connection.is_closed, databases))


def test_a_forked_child_opens_its_own(options: ClientOptions) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with lease(options) as connection:
        child = context.Process(target=_in_child, args=(options.bootstrap_servers, results))
        child.start()
        closed, databases = results.get(timeout=patience(120))
        child.join(patience(60))
        assert (closed, child.exitcode) == (False, 0)
        assert "fluss" in databases
        assert not connection.is_closed
    with lease(options) as again:
        assert again is connection


def test_a_connection_that_was_closed_is_replaced(options: ClientOptions) -> None:
    with lease(options) as connection:
        connection.close()
    with lease(options) as other:
        assert other is not connection
        assert not other.is_closed


def test_errors_have_address_and_reason(options: ClientOptions) -> None:
    with (
        pytest.raises(FlussError, match=r"no connection to 127\.0\.0\.1:1 from this Spark process") as refused,
        lease(ClientOptions("127.0.0.1:1")),
    ):
        pass
    assert refused.value.error_code == ErrorCode.NETWORK_EXCEPTION
    wanted = parse_options({"bootstrap.servers": options.bootstrap_servers, "table": "fluss.no_such_table"})
    with pytest.raises(FlussError) as missing, open_table(wanted):
        pass
    assert missing.value.error_code == ErrorCode.TABLE_NOT_EXIST
