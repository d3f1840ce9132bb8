"""Frames that never end leave memory to frames of other peers."""

from __future__ import annotations

import contextlib

import pytest

from bench.amplification_frames import unfinished_frames
from fluss.server.network.limits import NetworkLimits
from tests.support.servers.toy_network import running_network
from tests.unit.server.network.test_limits import produce_frame
from tools.waiting import wait_until


def test_frames_that_never_end_do_not_block_other_writers() -> None:
    # None of them is dropped here for stalling: those that come later have their share at once.
    limits = NetworkLimits(
        max_received_bytes_in_memory=4_000_000,
        max_shared_received_bytes=3_000_000,
        frame_stall_under_pressure_seconds=600.0,
    )
    with running_network(limits) as network:
        unfinished = [network.client() for _ in range(5)]
        for client in unfinished:
            client.send_bytes(produce_frame(20_000_000)[:300_000])
        wait_until(lambda: network.server.received.bytes >= 1_500_000, "more than what is not shared is taken")
        with network.client() as other:
            assert other.produce(1, 0, bytes(200_000)).base_offset == 200_000
        assert network.server.connection_count >= len(unfinished)
        for client in unfinished:
            client.close()


def test_endless_frames_that_begin_one_after_another_do_not_block_other_writers() -> None:
    """Shares shrink after a frame has begun, and the oldest frame may always continue."""
    frames, frame_bytes = 40, 12_000_000
    limits = NetworkLimits(
        max_received_bytes_in_memory=64_000_000,
        max_shared_received_bytes=32_000_000,
        max_request_bytes=12_500_000,
        frame_stall_under_pressure_seconds=600.0,
    )
    with running_network(limits) as network, network.client() as other, contextlib.ExitStack() as unfinished:
        received = network.server.received

        def take_no_more(number: int) -> bool:
            taken = received._of_frames
            return len(taken) == number and all(
                owner in received._waiting or size == frame_bytes for owner, size in taken.items()
            )

        host, port = other.socket.getpeername()
        for number in range(1, frames + 1):
            unfinished.enter_context(unfinished_frames((host, port), frames=1, frame_bytes=frame_bytes))
            wait_until(lambda number=number: network.in_loop(lambda: take_no_more(number)), "it has its share")  # type: ignore[misc]
        assert received.bytes > 32_000_000, "more than what is not shared is taken"
        for _ in range(100):
            assert other.produce(1, 0, bytes(100_000)).base_offset == 100_000


@pytest.mark.parametrize("use_uvloop", [True, False])
def test_bytes_after_the_heads_of_many_frames_do_not_block_other_writers(use_uvloop: bool) -> None:
    """They are received before they are known to belong to a large frame, so the frame's share did not limit them."""
    limits = NetworkLimits(
        max_received_bytes_in_memory=16_000_000,
        max_shared_received_bytes=14_000_000,
        frame_stall_under_pressure_seconds=600.0,
    )
    begun = produce_frame(20_000_000)
    with running_network(limits, use_uvloop=use_uvloop) as network, contextlib.ExitStack() as unfinished:
        received = network.server.received
        for number in range(101):
            client = unfinished.enter_context(network.client())
            client.send_bytes(begun[: 300_000 if number else 6_000_000])
            wait_until(lambda number=number: len(received._of_frames) > number, "the frame has begun")  # type: ignore[misc]
        with network.client() as other:
            assert other.produce(1, 0, bytes(66_000)).base_offset == 66_000
        assert not received.is_full
