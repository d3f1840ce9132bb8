"""Failed logins slow down their address."""

from __future__ import annotations

import itertools

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.server.network.login_attempts import (
    FREE_FAILURES,
    LAST_PAUSE_SECONDS,
    MAX_REMEMBERED_ADDRESSES,
    MAX_TURN_WAIT_SECONDS,
    LoginAttempts,
)
from tests.support.servers.toy_network import running_network


def failed(attempts: LoginAttempts, count: int, now: float = 0.0, address: str = "a") -> LoginAttempts:
    for _ in range(count):
        attempts.note_failure(address, now)
    return attempts


def test_the_first_failures_cost_nothing() -> None:
    attempts = failed(LoginAttempts(), FREE_FAILURES - 1)
    assert attempts.wait_seconds("a", 0.0) == 0


def test_pauses_double_and_other_addresses_have_none() -> None:
    attempts = failed(LoginAttempts(), FREE_FAILURES)
    turns = [0.0]
    for _ in range(4):
        turns.append(attempts.wait_seconds("a", 0.0) or 0.0)
        failed(attempts, 1)
    pauses = [later - earlier for earlier, later in itertools.pairwise(turns)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert attempts.wait_seconds("b", 0.0) == 0


def test_attempts_over_many_connections_take_turns() -> None:
    """An address gets one attempt per pause over all connections; later ones are refused without being judged."""
    attempts = failed(LoginAttempts(), 10 * FREE_FAILURES)
    waits = [attempts.wait_seconds("a", 0.0) for _ in range(5)]
    assert waits == [LAST_PAUSE_SECONDS * number for number in (1, 2, 3)] + [None, None]
    assert LAST_PAUSE_SECONDS * 3 == MAX_TURN_WAIT_SECONDS


def test_failures_are_forgotten_over_time() -> None:
    attempts = failed(LoginAttempts(), FREE_FAILURES + 5)
    assert attempts.wait_seconds("a", 0.0)
    assert attempts.wait_seconds("a", 60.0) == 0


def test_the_number_of_addresses_is_bounded() -> None:
    attempts = LoginAttempts()
    for number in range(MAX_REMEMBERED_ADDRESSES + 10):
        failed(attempts, 1, address=str(number))
    assert len(attempts._addresses) == MAX_REMEMBERED_ADDRESSES


def test_a_server_slows_down_password_guessing() -> None:
    with running_network() as network:
        attempts = network.server.dispatcher.login_attempts
        with network.sasl_client() as client:
            for _ in range(3):
                with pytest.raises(FlussError) as caught:
                    client.authenticate("admin", "wrong")
                assert caught.value.error_code == ErrorCode.AUTHENTICATE_EXCEPTION
        assert network.in_loop(lambda: attempts._addresses["127.0.0.1"].level) > 2, "they were counted"
        network.in_loop(lambda: failed(attempts, FREE_FAILURES, network.loop.time(), "127.0.0.1"))
        with network.sasl_client() as client:
            before = network.in_loop(network.loop.time)
            client.authenticate("admin", "secret")
            assert network.in_loop(lambda: attempts._addresses["127.0.0.1"].next_turn) > before, "it had a turn"
            assert client.metadata() is not None

        def occupy() -> None:
            failed(attempts, 100, network.loop.time(), "127.0.0.1")
            while attempts.wait_seconds("127.0.0.1", network.loop.time()) is not None:
                pass

        network.in_loop(occupy)
        with network.sasl_client() as client, pytest.raises(FlussError) as refused:
            client.authenticate("admin", "secret")
        assert refused.value.error_code == ErrorCode.RETRIABLE_AUTHENTICATE_EXCEPTION
        with network.client() as client:
            assert client.metadata() is not None, "a listener without login has nothing to guess"
