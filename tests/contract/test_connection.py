"""Opening, using and closing connections, on every server."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import warnings

import psutil
import pytest

import fluss
from fluss import ErrorCode, FlussConnection, FlussError
from fluss.client.net.self_awaitable import Closing
from tests.support.runner.lanes import rounds
from tests.support.servers.targets import Target
from tools.waiting import wait_until

SHORT_CONNECTIONS = rounds(gate=60, all_lanes=2000)


def test_connections_in_all_spellings(target: Target) -> None:
    async def body() -> None:
        connection = await FlussConnection.connect(target.config())
        admin = await connection.get_admin()
        assert "fluss" in await admin.list_databases()
        assert "fluss" in await connection.get_admin().list_databases()
        connection.close()
        assert connection.is_closed
        with await FlussConnection.create(target.config()) as connection:
            assert "fluss" in await connection.get_admin().list_databases()
        assert connection.is_closed
        async with await FlussConnection.create(target.config()) as connection:
            assert "fluss" in await connection.get_admin().list_databases()
        await connection.close()  # again: nothing to do
        assert repr(connection) == f"FlussConnection('{target.bootstrap_servers}', closed)"

    asyncio.run(body())


def test_a_connection_outlives_event_loops(target: Target) -> None:
    connection = asyncio.run(FlussConnection.create(target.config()))
    admin = connection.get_admin()
    assert asyncio.run(admin.list_databases()) == asyncio.run(admin.list_databases())
    connection.close()


def test_one_of_several_bootstrap_servers_is_enough(target: Target) -> None:
    config = fluss.Config({"bootstrap.servers": f"127.0.0.1:1, {target.bootstrap_servers}"})
    with FlussConnection.open(config) as connection:
        assert "fluss" in asyncio.run(connection.get_admin().list_databases())


def test_a_login_is_needed_where_the_listener_wants_one(target: Target) -> None:
    async def body() -> None:
        async with await FlussConnection.create(target.sasl_config()) as connection:
            admin = connection.get_admin()
            assert "fluss" in await admin.list_databases()
            nodes = await admin.get_server_nodes()
            assert f"{nodes[0].host}:{nodes[0].port}" == target.sasl_bootstrap_servers
        with pytest.raises(FlussError) as caught:
            await FlussConnection.create(target.sasl_config(password="guessed"))
        assert caught.value.error_code == ErrorCode.AUTHENTICATE_EXCEPTION
        assert "guessed" not in str(caught.value)
        with pytest.raises(FlussError) as caught:
            await FlussConnection.create(fluss.Config({"bootstrap.servers": target.sasl_bootstrap_servers}))
        assert caught.value.error_code == ErrorCode.AUTHENTICATE_EXCEPTION

    asyncio.run(body())


def test_a_closed_connection_says_so(target: Target) -> None:
    connection = FlussConnection.open(target.config())
    admin = connection.get_admin()
    connection.close()
    for call in (admin.list_databases(), connection.get_table("fluss.t")):
        with pytest.raises(FlussError, match="the connection is closed") as caught:
            asyncio.run(call)
        assert caught.value.error_code == ErrorCode.CLIENT_ERROR
    with pytest.raises(FlussError, match="the connection is closed"):
        connection.get_admin()


def test_close_without_await_in_a_coroutine_is_done_when_it_returns(target: Target) -> None:
    async def body() -> None:
        connection = await FlussConnection.create(target.config())
        cluster = connection._session.cluster
        connection.close()
        assert cluster.closed
        connection = await FlussConnection.create(target.config())
        closing = connection.close()
        assert isinstance(closing, Closing)
        await closing
        assert connection._session.cluster.closed

    asyncio.run(body())


def test_a_forgotten_connection_warns_and_is_closed(target: Target) -> None:
    connection = FlussConnection.open(target.config())
    cluster = connection._session.cluster
    with pytest.warns(ResourceWarning, match=f"a connection to {target.bootstrap_servers} was not closed"):
        del connection
    wait_until(lambda: cluster.closed, "the cluster is closed")


def test_an_object_of_a_connection_keeps_it_open(target: Target) -> None:
    admin = FlussConnection.open(target.config()).get_admin()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
        assert "fluss" in asyncio.run(admin.list_databases())
    with pytest.warns(ResourceWarning):
        del admin


def test_many_short_connections_leave_nothing_behind(target: Target) -> None:
    with FlussConnection.open(target.config()):
        pass
    process = psutil.Process(os.getpid())
    threads_before, files_before = threading.active_count(), process.num_fds()

    async def body() -> None:
        for _ in range(SHORT_CONNECTIONS):
            async with await FlussConnection.create(target.config()) as connection:
                await connection.get_admin().database_exists("fluss")

    asyncio.run(body())
    # An embedded server closes its ends of the sockets when it notices; give it the time.
    wait_until(lambda: threading.active_count() <= threads_before + 1, "the threads have ended")
    wait_until(lambda: process.num_fds() <= files_before + 5, "the sockets are closed")
