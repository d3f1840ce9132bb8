"""`fluss tier --spark` under fire: its driver, its Python workers and the server are killed while tables are written.

After every death lake and log together are exactly what was acknowledged, for log and primary-key tables, with and
without partitions. Starting Spark again takes seconds, so there are few rounds here; `tests/recovery` has many with the
local engine.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

import fluss
from tests.support.lake.written_tables import LakeModel
from tests.support.runner.lanes import rounds, seed
from tests.support.spark.killed_pipeline import kill_worker
from tools.servers.ports import free_ports
from tools.servers.server_process import COMMAND, ServerProcess
from tools.waiting import patience, wait_until

KINDS = ("driver", "worker", "server")
ROUNDS = rounds(gate=len(KINDS), all_lanes=2 * len(KINDS), share_of_soak=0.1)
LONGEST_PAUSE_SECONDS = 0.6
PROGRESS_SECONDS = 120.0
SERVER = {"lake.tiering.heartbeat-timeout": "3 s", "lake.tiering.check-interval": "100 ms"}
# A task whose worker died is retried.
FLAGS = ("--spark", "--master", "local[2,4]", "--every", "100ms", "--heartbeat", "500ms")


class Driver:
    """`fluss tier` with its Java process and its workers."""

    def __init__(self, address: str, folder: Path) -> None:
        self._command = [*COMMAND, "tier", "--bootstrap", address, *FLAGS]
        self._log = folder / "tier.log"
        self._left: list[psutil.Process] = []
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """`kill -9` of the driver and of Java; workers notice it a moment later."""
        self._left += psutil.Process(self._process.pid).children(recursive=True)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_worker(self, rng: random.Random) -> None:
        kill_worker(self._process.pid, rng, PROGRESS_SECONDS)

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]

    def end(self) -> None:
        """End the program and all its processes."""
        if self._process.poll() is None:
            self.kill()
        _, alive = psutil.wait_procs(self._left, timeout=patience(120))
        for process in alive:
            process.kill()


def wait_for_progress(model: LakeModel, driver: Driver) -> None:
    """Wait until every table has been tiered again."""
    before = model.offsets()
    try:
        wait_until(
            lambda: all(now > then for now, then in zip(model.offsets(), before, strict=True)),
            "every table makes progress in the lake",
            PROGRESS_SECONDS,
        )
    except AssertionError as error:
        raise AssertionError(f"{error}\n{driver.log_text()}") from error


def strike(kind: str, rng: random.Random, server: ServerProcess, driver: Driver) -> None:
    """Kill one part and start it again."""
    if kind == "worker":
        driver.kill_worker(rng)
    elif kind == "driver":
        driver.kill()
        driver.start()
    else:
        server.kill()
        server.start()


@pytest.mark.all  # starts Spark once per death; tests/recovery has such deaths with the local engine
def test_lake_and_log_are_the_model_after_every_death(tmp_path: Path) -> None:
    rng = random.Random(seed())
    (port,) = free_ports(1)
    with (
        ServerProcess(tmp_path / "data", bind=f"127.0.0.1:{port}", tablets=2, config=SERVER) as server,
        fluss.connect(server.address) as db,
    ):
        model = LakeModel(db, seed())
        driver = Driver(server.address, tmp_path)
        try:
            for number in range(ROUNDS):
                wait_for_progress(model, driver)
                time.sleep(rng.uniform(0, LONGEST_PAUSE_SECONDS))
                strike(KINDS[number % len(KINDS)], rng, server, driver)
                model.check()
            model.end()
            wanted = model.row_count
            wait_until(lambda: model.check() == wanted, "everything is in the lake", PROGRESS_SECONDS)
        finally:
            driver.end()
