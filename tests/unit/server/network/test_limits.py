"""Every limit of the network layer: what happens to a peer that reaches it, and that others are not affected."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import threading
import time

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.protocol.frames import request_frame
from fluss.server.network.buffers import TURN_BYTES
from fluss.server.network.limits import NetworkLimits
from fluss.server.network.server import RECEIVE_BUFFER_BYTES
from tests.support.servers.toy_network import RunningNetwork, running_network
from tools.servers.wire_client import WireClient
from tools.waiting import patience, wait_until

DEADLINE_SECONDS = patience(60.0)
DATABASE_EXISTS = request_frame(ApiKey.DATABASE_EXISTS, 0, 1, b"\x0a\x01d")
METADATA = request_frame(ApiKey.GET_METADATA, 0, 2, b"")
FETCH = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1).SerializeToString()


def produce_frame(size: int, request_id: int = 7) -> bytes:
    request = pb.ProduceLogRequest(acks=1, table_id=1, timeout_ms=1)
    request.buckets_req.add(bucket_id=0, records=bytes(size))
    return request_frame(ApiKey.PRODUCE_LOG, 0, request_id, request.SerializeToString())


def assert_others_are_served(network: RunningNetwork) -> None:
    with network.client() as other:
        other.metadata()


def test_the_largest_frame_is_served_and_one_byte_more_is_not() -> None:
    largest = len(produce_frame(50_000))
    with running_network(NetworkLimits(max_request_bytes=largest)) as network:
        with network.client() as client:
            client.send_bytes(produce_frame(50_000))
            assert client.receive_frame()[:2] == (7, 0)
            client.send_bytes(produce_frame(50_001)[:12])
            assert client.is_closed_by_server()
        assert_others_are_served(network)


def test_frames_before_login_are_small() -> None:
    with running_network(NetworkLimits(max_request_before_login_bytes=100)) as network:
        with network.sasl_client() as client:
            client.send_bytes((97).to_bytes(4, "big"))
            assert client.is_closed_by_server()
        with network.sasl_client() as client:
            client.authenticate("admin", "secret")
            assert client.produce(1, 0, bytes(1000)).base_offset == 1000


def test_connections_beyond_the_limit_are_refused_while_all_are_in_use() -> None:
    with running_network(NetworkLimits(max_connections=2)) as network, network.client() as first:
        first.metadata()
        with network.client() as second:
            second.metadata()
            with network.client() as third:
                assert third.is_closed_by_server()
            first.metadata()
        wait_until(lambda: network.server.connection_count == 1, "one connection")
        assert_others_are_served(network)


def test_a_silent_connection_is_replaced_by_a_new_one() -> None:
    with running_network(NetworkLimits(max_connections=2)) as network, network.client() as talking:
        talking.metadata()
        with network.client() as silent:
            wait_until(lambda: network.server.connection_count == 2, "two connections")

            def can_connect() -> bool:
                with network.client() as other:
                    try:
                        other.metadata()
                    except (FlussError, ConnectionError):
                        return False
                    return True

            wait_until(can_connect, "room for a connection")
            assert silent.is_closed_by_server()
        talking.metadata()


def test_too_many_failed_logins_end_the_connection() -> None:
    with (
        running_network(NetworkLimits(max_login_failures_per_connection=3)) as network,
        network.sasl_client() as client,
    ):
        for _ in range(3):
            with pytest.raises(FlussError) as error:
                client.authenticate("admin", "wrong")
            assert error.value.error_code == ErrorCode.AUTHENTICATE_EXCEPTION
        assert client.is_closed_by_server()


@pytest.mark.parametrize("use_uvloop", [True, False])
def test_requests_under_way_are_limited_and_continue_later(use_uvloop: bool) -> None:
    limits = NetworkLimits(max_in_flight_requests_per_connection=4)
    with running_network(limits, use_uvloop=use_uvloop) as network, network.client() as client:
        client.send_bytes(DATABASE_EXISTS * 10 + METADATA)
        wait_until(lambda: len(network.service.parked) == 4, "four requests wait")
        assert_others_are_served(network)
        assert len(network.service.parked) == 4
        parked = network.service.parked
        for number in range(10):
            wait_until(lambda number=number: len(parked) > number, "the next request is taken up")  # type: ignore[misc]
            network.in_loop(lambda number=number: parked[number].set_result(True))  # type: ignore[misc]
        kinds = [client.receive_frame()[0] for _ in range(11)]
        assert sorted(kinds) == [1] * 10 + [2]


def test_a_turn_ends_after_some_requests_and_others_come_in_between() -> None:
    with running_network(NetworkLimits(max_requests_per_turn=2)) as network, network.client() as client:
        client.send_bytes(METADATA * 100)
        assert [client.receive_frame()[0] for _ in range(100)] == [2] * 100


@pytest.mark.parametrize("use_uvloop", [True, False])
def test_a_peer_that_reads_no_answers_is_held_and_then_disconnected(use_uvloop: bool) -> None:
    limits = NetworkLimits(max_unsent_bytes_before_pause=100_000, write_stall_seconds=2.0)
    with running_network(limits, use_uvloop=use_uvloop) as network:
        network.service.fetch_payload = [memoryview(bytes(4_000_000))]
        with network.client() as client:
            wait_until(lambda: network.server.connection_count == 1, "one connection")
            client.send_bytes(request_frame(ApiKey.FETCH_LOG, 0, 1, FETCH) * 100)
            assert_others_are_served(network)
            wait_until(lambda: network.server.connection_count == 0, "no connection is left")
        assert_others_are_served(network)


@pytest.mark.parametrize("use_uvloop", [True, False])
def test_a_slow_reader_gets_everything(use_uvloop: bool) -> None:
    limits = NetworkLimits(max_unsent_bytes_before_pause=10_000)
    with running_network(limits, use_uvloop=use_uvloop) as network, network.client() as client:
        network.service.fetch_payload = [memoryview(bytes(500_000))]
        requests = [client.send(ApiKey.FETCH_LOG, FETCH) for _ in range(40)]
        assert_others_are_served(network)
        for request_id in requests:
            assert len(client.receive(request_id).tables_resp[0].buckets_resp[0].records) == 500_000


def test_answers_that_pile_up_end_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    limits = NetworkLimits(max_unsent_bytes_per_connection=10_000_000)
    with running_network(limits) as network, network.client() as client, caplog.at_level(logging.WARNING):
        network.service.park_fetches = True
        network.service.fetch_payload = [memoryview(bytes(4_000_000))]
        client.send_bytes(request_frame(ApiKey.FETCH_LOG, 0, 1, FETCH) * 10)
        wait_until(lambda: len(network.service.parked) == 10, "ten requests wait")

        def answer_all() -> None:
            for future in network.service.parked:
                future.set_result(network.service.fetch_answer())

        network.in_loop(answer_all)
        wait_until(lambda: network.server.connection_count == 0, "no connection is left")
        assert "does not read its answers" in caplog.text


def test_received_bytes_are_limited_over_all_connections() -> None:
    limits = NetworkLimits(max_received_bytes_in_memory=1_000_000)
    frame = produce_frame(3_000_000)
    with running_network(limits) as network, network.client() as keeper, network.client() as oldest:
        network.service.keep_records = True
        keeper.produce(1, 0, bytes(1_200_000))
        network.service.keep_records = False
        oldest.send_bytes(frame[:100_000])
        wait_until(lambda: network.server.received.bytes > 1_300_000, "most of the bytes are there")
        with network.client() as waiting:
            sender = threading.Thread(target=waiting.send_bytes, args=(frame,))
            sender.start()
            wait_until(lambda: network.in_loop(lambda: network.server.received.has_waiting), "a connection waits")
            assert_others_are_served(network)
            assert network.server.received.bytes < 1_300_000 + 2 * RECEIVE_BUFFER_BYTES
            oldest.send_bytes(frame[100_000:])  # the oldest unfinished frame always continues
            assert oldest.receive_frame()[:2] == (7, 0)
            network.in_loop(network.service.kept[0].release)
            assert waiting.receive_frame()[:2] == (7, 0)
            sender.join(DEADLINE_SECONDS)
        wait_until(lambda: network.server.received.bytes == 0, "all bytes are given back")


def test_frames_cannot_wait_for_each_other_forever() -> None:
    limits = NetworkLimits(max_received_bytes_in_memory=500_000)
    with running_network(limits) as network:
        clients = [network.client() for _ in range(4)]
        frame = produce_frame(400_000)
        for client in clients:
            client.send_bytes(frame[:200_000])
        for client in clients:
            client.send_bytes(frame[200_000:])
        for client in clients:
            assert client.receive_frame()[:2] == (7, 0)
            client.close()


@pytest.mark.parametrize("use_uvloop", [True, False])
def test_a_frame_of_several_turns_is_served(use_uvloop: bool) -> None:
    with running_network(use_uvloop=use_uvloop) as network, network.client() as client:
        assert client.produce(1, 0, bytes(3 * TURN_BYTES)).base_offset == 3 * TURN_BYTES


def test_connections_that_wait_are_accepted_together() -> None:
    """One was accepted per iteration of the loop; with large frames being received, the last waited for a second."""
    connections, connected = 60, threading.Event()
    seen = [0]

    async def look() -> None:
        connected.wait(DEADLINE_SECONDS)  # the loop is blocked until all of them wait
        while seen[-1] < connections:
            await asyncio.sleep(0)
            seen.append(network.server.connection_count)

    with running_network() as network, contextlib.ExitStack() as clients:
        looking = asyncio.run_coroutine_threadsafe(look(), network.loop)
        for _ in range(connections):
            clients.enter_context(network.client())
        connected.set()
        looking.result(DEADLINE_SECONDS)
    assert len(seen) < connections / 2


def test_a_stalled_frame_that_holds_memory_is_dropped_when_others_wait() -> None:
    limits = NetworkLimits(max_received_bytes_in_memory=500_000, frame_stall_under_pressure_seconds=0.2)
    with running_network(limits) as network, network.client() as stalled, network.client() as client:
        stalled.send_bytes(produce_frame(2_000_000)[:600_000])
        wait_until(lambda: network.server.received.bytes >= 500_000, "the memory is full")
        client.send_bytes(produce_frame(400_000))
        assert client.receive_frame()[:2] == (7, 0)
        assert stalled.is_closed_by_server()


@pytest.mark.parametrize("start", [1, 6, 13, 200_000])
def test_a_stalled_frame_ends_the_connection(start: int) -> None:
    limits = NetworkLimits(frame_stall_seconds=0.2)
    with running_network(limits) as network, network.client() as client:
        client.send_bytes(produce_frame(300_000)[:start])
        assert client.is_closed_by_server()
        assert network.in_loop(lambda: network.server.received.bytes) == 0


def test_time_in_which_the_server_itself_hung_does_not_count_against_its_peers() -> None:
    with running_network() as network, network.client() as client:
        frame = produce_frame(300_000)
        client.send_bytes(frame[:200_000])
        wait_until(lambda: network.in_loop(lambda: network.server.received.bytes) > 0, "the frame has begun")

        def hang() -> None:
            network.server._swept_at -= 1000.0
            network.server._sweep()

        network.in_loop(hang)
        client.send_bytes(frame[200_000:])
        assert client.receive_frame()[:2] == (7, 0)


def test_a_very_slow_frame_ends_the_connection() -> None:
    limits = NetworkLimits(frame_stall_seconds=0.3)
    with running_network(limits) as network, network.client(timeout_seconds=0.02) as client:
        frame = request_frame(ApiKey.GET_METADATA, 0, 1, bytes(1000))
        started = time.monotonic()
        for position in range(len(frame)):
            try:
                client.send_bytes(frame[position : position + 1])
            except ConnectionError:
                break
            if client.is_closed_by_server():
                break
        else:
            pytest.fail("the whole frame was taken, though it took longer than a frame may stall")
        assert time.monotonic() - started > 0.2


def test_no_login_in_time() -> None:
    with running_network(NetworkLimits(login_seconds=2.0)) as network:
        with network.sasl_client() as client:
            client.api_versions()
            assert client.is_closed_by_server()
        with network.sasl_client() as client:
            client.authenticate("admin", "secret")
            wait_until(
                lambda: network.server.now > network.in_loop(lambda: network.server.loop.time()) - 2.0,
                "the clock of the server goes",
            )
            client.metadata()


def test_idle_connections_end_but_not_those_with_requests_under_way() -> None:
    with running_network(NetworkLimits(idle_seconds=2.0)) as network, network.client() as waiting:
        request_id = waiting.send(ApiKey.DATABASE_EXISTS, pb.DatabaseExistsRequest(database_name="d"))
        with network.client() as idle:
            idle.metadata()
            assert idle.is_closed_by_server()
        network.in_loop(lambda: network.service.parked[0].set_result(True))
        assert waiting.receive(request_id).exists


def test_waiting_fetches_end_with_their_connection() -> None:
    with running_network() as network:
        network.service.park_fetches = True
        with network.client() as client:
            client.send(ApiKey.FETCH_LOG, FETCH)
            wait_until(lambda: len(network.service.parked) == 1, "a request waits")
        wait_until(lambda: network.service.parked[0].cancelled(), "the request is given up")


@pytest.mark.parametrize("use_uvloop", [True, False])
def test_a_held_connection_ends_when_its_peer_is_gone(use_uvloop: bool) -> None:
    limits = NetworkLimits(max_in_flight_requests_per_connection=4, frame_stall_seconds=0.2)
    with running_network(limits, use_uvloop=use_uvloop) as network:
        network.service.park_fetches = True
        with network.client() as client:
            client.send_bytes(request_frame(ApiKey.FETCH_LOG, 0, 1, FETCH) * 20)
            wait_until(lambda: len(network.service.parked) == 4, "four requests wait")
        wait_until(lambda: network.server.connection_count == 0, "no connection is left")
        wait_until(lambda: all(future.cancelled() for future in network.service.parked), "all are given up")


def test_stopping_finishes_what_is_under_way() -> None:
    with running_network() as network, network.client() as client:
        request_id = client.send(ApiKey.DATABASE_EXISTS, pb.DatabaseExistsRequest(database_name="d"))
        wait_until(lambda: len(network.service.parked) == 1, "a request waits")
        stopping = asyncio.run_coroutine_threadsafe(network.server.stop(), network.loop)
        wait_until(lambda: _is_refused(network), "connections are refused")
        network.in_loop(lambda: network.service.parked[0].set_result(True))
        assert client.receive(request_id).exists
        stopping.result(DEADLINE_SECONDS)
        assert client.is_closed_by_server()


def _is_refused(network: RunningNetwork) -> bool:
    try:
        with WireClient("127.0.0.1", network.port, 1.0) as client:
            return client.is_closed_by_server()
    except (TimeoutError, ConnectionRefusedError):
        return True


def test_every_limit_has_its_unit_in_its_name() -> None:
    units = ("bytes", "seconds", "connections", "per_connection", "per_turn", "in_memory", "before_pause")
    for field in dataclasses.fields(NetworkLimits):
        assert field.name.endswith(units), field.name
