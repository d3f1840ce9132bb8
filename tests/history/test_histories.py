"""Histories of a server whose processes are killed while clients use it: nothing in them is impossible.

`python3 dev.py soak` and `--all` run many more rounds than the gate.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import fluss
from fluss.client.net import cluster
from tests.history import checks
from tests.history.clients import JOIN_SECONDS, KEYS, ROUNDS_PER_KEY, TABLES, Client, Recorded, Tail, create_tables
from tests.support.runner.lanes import rounds, seed
from tools.servers.server_process import ServerProcess
from tools.waiting import wait_until

CALLS_PER_ROUND = 8
CHECKS = {
    "register": checks.register,
    "partial": checks.register,
    "first": checks.first_row,
    "versioned": checks.versioned,
    "list": checks.append_list,
}


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that give up do so soon."""
    monkeypatch.setattr(cluster, "LEADER_WAIT_SECONDS", 0.5)


def _kill(server: ServerProcess, number: int) -> None:
    """In turn the tablet, which the supervisor starts again, and all processes."""
    tablet = server.process_of("tablet-0")
    if tablet is not None and number % 2 == 0:
        tablet.kill()
        return
    server.kill()
    server.start()


def _calls_in_round(clients: list[Client], number: int) -> None:
    before = [client.done for client in clients]
    for client in clients:
        client.round = number
    wait_until(
        lambda: all(
            client.done >= done + CALLS_PER_ROUND or not client.is_alive()
            for client, done in zip(clients, before, strict=True)
        ),
        "every client has made its calls",
        JOIN_SECONDS,
    )


def _finish(db: fluss.Database, clients: list[Client], tail: Tail, recorded: Recorded, last_round: int) -> None:
    for client in clients:
        client.stopping.set()
    for client in clients:
        client.join(JOIN_SECONDS)
    for name in TABLES:
        for key in range((last_round // ROUNDS_PER_KEY + 1) * KEYS):
            if name != "list" or key >= last_round // ROUNDS_PER_KEY * KEYS:
                clients[0].read(db, name, key)
    admin = db.connection.get_admin()
    tail.until = asyncio.run(admin.list_offsets("fluss.list", [0], fluss.OffsetSpec.latest()))[0]
    tail.join(JOIN_SECONDS)
    whole = Tail(db.connection.config.bootstrap_servers, recorded)
    whole.until = tail.until
    whole.run()
    used: list[Client | Tail] = [*clients, tail, whole]
    for thread in used:
        assert not thread.is_alive()
        for error in thread.defects:
            raise error


def _rounds_for(seconds: float) -> Iterator[int]:
    """As many rounds as begin within this time, at least one: a bound on the work, and nothing that is asserted."""
    end = time.monotonic() + seconds
    for number in itertools.count():
        if number > 0 and time.monotonic() > end:
            return
        yield number


def _run(directory: Path, client_count: int, numbers: Iterable[int], run_seed: int, flush: str) -> Recorded:
    recorded = Recorded()
    config = {"log.flush": flush}
    with ServerProcess(directory, tablets=1, config=config) as server, fluss.connect(server.address) as db:
        create_tables(db)
        clients = [Client(number, server.address, recorded, run_seed) for number in range(client_count)]
        tail = Tail(server.address, recorded)
        for thread in (*clients, tail):
            thread.start()
        done = 0
        for number in numbers:
            _calls_in_round(clients, number)
            _kill(server, number)
            done += 1
        _calls_in_round(clients, done)
        _finish(db, clients, tail, recorded, done)
    return recorded


def _judge(recorded: Recorded) -> None:
    wrong = {name: checks.problems(history, CHECKS[name]) for name, history in recorded.histories.items()}
    *tails, whole = recorded.tails
    wrong["places"] = checks.log_places([pair for tail in recorded.tails for pair in tail])
    wrong["tails"] = [text for tail in tails for text in checks.tail_is_whole(tail, whole)]
    found = {name: texts[:5] for name, texts in wrong.items() if texts}
    assert not found, found
    assert all(history.writes and history.reads for history in recorded.histories.values()), "nothing was tried"


def test_nothing_impossible_is_seen_while_the_server_is_killed(tmp_path: Path) -> None:
    numbers = range(rounds(gate=1, all_lanes=14, share_of_soak=0.5))
    _judge(_run(tmp_path / "data", 4, numbers, seed(), "always"))


@pytest.mark.all
def test_sixteen_clients_for_a_minute(tmp_path: Path) -> None:
    """Half an hour in soak."""
    seconds = rounds(gate=60, all_lanes=60, share_of_soak=3.6)
    _judge(_run(tmp_path / "data", 16, _rounds_for(seconds), seed(), "always"))


@pytest.mark.all
def test_nor_with_a_log_that_is_not_synced(tmp_path: Path) -> None:
    """Kills take nothing from the page cache."""
    numbers = range(rounds(gate=5, all_lanes=14, share_of_soak=0.5))
    _judge(_run(tmp_path / "data", 8, numbers, seed(), "os"))
