"""Tables are written and tiered all the time while services and servers are killed: lake and log match the model.

Two tiering services, a server with two tablets, a writer that never pauses: a log table and a primary-key table, each
with and without partitions. In every round `kill -9` hits a service at a random moment or at a chosen step of a round,
the whole server, or a part of it. After each kill lake and log together are compared with the acknowledged rows, while
the services continue. The services also do the maintenance of the tables, and apply changes of keys to the lake in both
ways: by rewriting buckets, and by hiding rows with position deletes.

30 rounds take about a minute. The seed of the run repeats kinds and moments.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

import fluss
from tests.support.lake.tiering_worker import start_service
from tests.support.lake.written_tables import LakeModel
from tests.support.runner.lanes import rounds, seed
from tools.servers.ports import free_ports
from tools.servers.server_process import ServerProcess
from tools.waiting import patience, wait_until

KINDS = ("tiering service", "step", "step", "part of the server", "server")
ROUNDS = rounds(gate=len(KINDS), all_lanes=30)
STEPS = ("planned", "written", "prepared", "committed", "registered")
LONGEST_PAUSE_SECONDS = 0.6
DEADLINE_SECONDS = 120.0
# Tables of a dead worker are assigned again soon; a live one sends five heartbeats in that time.
SERVER = {"lake.tiering.heartbeat-timeout": "1 s", "lake.tiering.check-interval": "100 ms"}


class TieringServices:
    """Two tiering workers; a dead one is started again, even one that killed itself at a chosen step."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.processes = [start_service(address), start_service(address)]

    def kill(self, rng: random.Random) -> None:
        number = rng.randrange(2)
        self._end(self.processes[number])
        self.processes[number] = start_service(self._address)

    def die_at_step(self, rng: random.Random) -> str:
        """Replace one by a worker that kills itself at a chosen step, and wait for that."""
        number, step = rng.randrange(2), rng.choice(STEPS)
        self._end(self.processes[number])
        doomed = start_service(self._address, step, rng.randint(1, 4))
        doomed.join(patience(DEADLINE_SECONDS))
        doomed.kill()
        assert doomed.exitcode == -9, f"it did not reach the step {step!r}, exit code {doomed.exitcode}"
        self.processes[number] = start_service(self._address)
        return step

    def end(self) -> None:
        for process in self.processes:
            self._end(process)

    def _end(self, process: BaseProcess) -> None:
        process.kill()
        process.join(patience(DEADLINE_SECONDS))


def strike(kind: str, rng: random.Random, server: ServerProcess, services: TieringServices) -> str:
    """Kill something, and start it again unless the supervisor does."""
    if kind == "step":
        return services.die_at_step(rng)
    time.sleep(rng.uniform(0, LONGEST_PAUSE_SECONDS))
    if kind == "tiering service":
        services.kill(rng)
    elif kind == "server":
        server.kill()
        server.start()
    else:
        server.kill_child(rng.randrange(3))
    return kind


def test_lake_and_log_match_the_model_after_every_kill(tmp_path: Path) -> None:
    rng = random.Random(seed())
    struck: Counter[str] = Counter()
    (port,) = free_ports(1)
    with (
        ServerProcess(tmp_path / "data", bind=f"127.0.0.1:{port}", tablets=2, config=SERVER) as server,
        fluss.connect(server.address) as db,
    ):
        model = LakeModel(db, seed())
        services = TieringServices(server.address)
        try:
            kinds: list[str] = []
            while sum(struck.values()) < ROUNDS:
                kinds = kinds or rng.sample(KINDS, len(KINDS))
                struck[strike(kinds.pop(), rng, server, services)] += 1
                model.check()
            # Nothing is stuck after all that: everything gets into the lake.
            model.end()
            wanted = model.row_count
            wait_until(lambda: model.check() == wanted, "everything is in the lake", DEADLINE_SECONDS)
            model.change_one()
            hidden = "primary-key tables are tiered in both ways"
            with_deletes = wait_until(model.rounds_with_deletes, hidden, DEADLINE_SECONDS)
            wait_until(lambda: model.check() == wanted, "the change is in the lake, too", DEADLINE_SECONDS)
        finally:
            services.end()
    print(f"{dict(struck)}, {wanted} rows, {with_deletes} rounds with position deletes")
