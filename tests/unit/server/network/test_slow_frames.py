"""Frames that arrive slowly, or are as large as the configuration allows, leave memory to ordinary frames."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluss.server.config.server_config import ServerConfig
from fluss.server.network.buffers import ReceivedInMemory
from fluss.server.network.limits import MIB, NetworkLimits
from fluss.server.process.roles import _network_limits
from tests.support.servers.toy_network import RunningNetwork, running_network
from tests.unit.server.network.test_limits import produce_frame
from tools.servers.wire_client import WireClient
from tools.waiting import wait_until

FRAME = produce_frame(20_000_000)
LIMITS = NetworkLimits(
    max_received_bytes_in_memory=4_000_000,
    max_shared_received_bytes=3_000_000,
    frame_stall_under_pressure_seconds=600.0,
    frame_stall_seconds=6_000.0,
    idle_seconds=60_000.0,
)


@pytest.mark.parametrize("request_mib", [1, 100, 128, 129, 200, 1024])
def test_the_oldest_frame_leaves_memory_to_ordinary_ones(tmp_path: Path, request_mib: int) -> None:
    limits = _network_limits(ServerConfig.for_tests(tmp_path, max_request_size=request_mib * MIB))
    account = ReceivedInMemory(limits.max_received_bytes_in_memory, limits.max_shared_received_bytes)
    frames = dict.fromkeys(range(1, 61), 0)

    def receive(owner: int) -> None:
        while frames[owner] < limits.max_request_bytes and account.may_continue(owner):
            count = min(account.step_bytes(owner), limits.max_request_bytes - frames[owner])
            account.charge_frame(owner, count)
            frames[owner] += count
            account._next_turn()

    for owner in frames:
        account.begin_frame(owner, limits.max_request_bytes)
    for owner in reversed(frames):  # the oldest one last
        receive(owner)
    ordinary = 61
    account.begin_frame(ordinary, MIB)
    assert account.may_continue(ordinary)
    assert limits.max_received_bytes_in_memory - account.bytes >= 27 * MIB, "28, less the last step of some frames"


def under_pressure(network: RunningNetwork, slow: WireClient, waiting: WireClient) -> int:
    """Begin a frame, and another that waits for memory; return how many bytes have arrived."""
    received = network.server.received
    slow.send_bytes(FRAME[:600_000])
    wait_until(lambda: network.in_loop(lambda: received.bytes) >= 600_000, "the oldest frame has begun")
    waiting.send_bytes(FRAME[:3_000_000])
    wait_until(lambda: network.in_loop(lambda: received.has_waiting), "the other one waits for memory")
    return network.in_loop(lambda: received.bytes)


def pass_time(network: RunningNetwork, seconds: float) -> None:
    def sweep() -> None:
        network.server.now += seconds
        network.server._sweep()

    network.in_loop(sweep)


@pytest.mark.parametrize(("step_bytes", "is_ended"), [(70_000, True), (600_000, False)])
def test_a_frame_that_trickles_while_others_wait_is_ended(step_bytes: int, is_ended: bool) -> None:
    with running_network(LIMITS) as network, network.client() as slow, network.client() as waiting:
        arrived = under_pressure(network, slow, waiting)
        position = 600_000
        for _ in range(4):
            slow.send_bytes(FRAME[position : position + step_bytes])
            position += step_bytes
            arrived += step_bytes
            wait_until(lambda: network.in_loop(lambda: network.server.received.bytes) >= arrived, "it goes on")  # noqa: B023
            pass_time(network, 400.0)
            if network.in_loop(lambda: network.server.connection_count) == 1:
                break
        assert (network.in_loop(lambda: network.server.connection_count) == 1) is is_ended
