"""The pipeline beyond one process: master, two workers, driver and server are programs of their own.

They share no folder for temporary files, caches or work; only the driver uses the checkpoints. Executors have their own
addresses and know about the server only from the driver. The effects of repeated and speculative tasks are tested here
too: Spark in one process has neither.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluss
from tests.support.runner.time_limits import TEST_LIMIT_SECONDS
from tests.support.servers.targets import Target, running_target
from tests.support.spark.cluster_job import ATTEMPTED_ROWS, ATTEMPTED_TASKS, FAILING, ROWS, SLOW
from tests.support.spark.standalone_cluster import SparkCluster
from tools.waiting import patience

pytestmark = pytest.mark.all

REPOSITORY = Path(__file__).parents[3]
# A little less than the limit of a test, so that a failure shows Spark's log.
ANSWER_SECONDS = 0.9 * TEST_LIMIT_SECONDS
HOSTS = ("127.0.0.1", "127.0.0.2")
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("text", pa.string()), ("rest", pa.int64())])
CONFIG = {
    "spark.driver.memory": "700m",
    "spark.executor.memory": "700m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    # Wait for both executors at the start.
    "spark.cores.max": str(len(HOSTS)),
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "200s",
    # A task that takes longer than the others gets a second concurrent attempt.
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "1s",
}


# Rows are sent before the end of a task, so that an attempt that fails late has written some.
SMALL_BATCHES = {"client.writer.batch-size": "16384"}


class DriverProgram:
    """The driver, which runs one job at a time."""

    def __init__(self, master: str, folder: Path) -> None:
        self._log = folder / "driver.log"
        settings = json.dumps({"master": master, "config": CONFIG})
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.spark.cluster_job", settings],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=REPOSITORY,
                env={**os.environ, **own_folders(folder / "driver")},
                text=True,
            )
        self._answer()

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        watchdog = threading.Timer(ANSWER_SECONDS, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        assert line, f"the driver gave no answer: {self._log.read_text(errors='replace')[-8000:]}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """Close its input, which ends it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(patience(60))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def own_folders(folder: Path) -> dict[str, str]:
    """Variables that keep the files of a program apart from those of the others."""
    variables = {"TMPDIR": "tmp", "XDG_CACHE_HOME": "cache", "SPARK_LOCAL_DIRS": "local"}
    for name in variables.values():
        (folder / name).mkdir(parents=True)
    return {variable: str(folder / name) for variable, name in variables.items()}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverProgram]:
    """A driver with two executors."""
    folder = tmp_path_factory.mktemp("cluster")
    with (
        SparkCluster(folder, hosts=HOSTS, environment=own_folders(folder / "executors")) as cluster,
        ended(DriverProgram(cluster.master, folder)) as driver,
    ):
        cluster.wait_for_workers()
        yield driver


@contextmanager
def ended(driver: DriverProgram) -> Iterator[DriverProgram]:
    try:
        yield driver
    finally:
        driver.end()


@pytest.fixture(params=["standalone", "apache"])
def target(request: pytest.FixtureRequest) -> Target:
    """The target; requested first, so that nothing is started if Apache Fluss is not available."""
    return running_target(request.param)


def test_a_pipeline_on_a_cluster(target: Target, driver: DriverProgram, tmp_path: Path) -> None:
    database = f"cluster_{uuid.uuid4().hex[:8]}"
    source, copy, keys = (f"{database}.{name}" for name in ("source", "copy", "keys"))
    with fluss.connect(target.config()) as db:
        db.create_database(database)
        db.create_table(source, SCHEMA, bucket_count=3)
        db.create_table(copy, SCHEMA, bucket_count=4)
        db.create_table(keys, SCHEMA, primary_keys=["id"], bucket_count=4)
        sinks = {copy: str(tmp_path / "copy"), keys: str(tmp_path / "keys")}
        options = {"bootstrap.servers": target.bootstrap_servers}
        job = {"job": "pipeline", "options": options, "source": source, "sinks": sinks, "hosts": len(HOSTS)}
        answer = driver.run(job)
        for table in (source, copy, keys):
            assert (answer[table]["rows"], answer[table]["ids"]) == (ROWS, sum(range(ROWS))), table
        assert answer["hosts"] == sorted(HOSTS), "one executor had no task"
        for table in (copy, keys):
            found = db.to_arrow(table).sort_by("id")
            assert found.column("id").to_pylist() == list(range(ROWS)), table
            assert found.column("text").to_pylist() == [f"ROW {number}" for number in range(ROWS)], table


def attempted(driver: DriverProgram, target: Target, folder: Path, **options: str) -> list[int]:
    """The rows of a table after a write in which one task failed once and another one ran twice at once."""
    table = f"fluss.attempts_{uuid.uuid4().hex[:8]}"
    options = {"bootstrap.servers": target.bootstrap_servers, **SMALL_BATCHES, **options}
    with fluss.connect(target.config()) as db:
        db.create_table(table, pa.schema([SCHEMA.field("id")]), bucket_count=2)
        driver.run({"job": "attempts", "options": options, "table": table, "folder": str(folder)})
        tried = [int(path.name.split("-")[1]) for path in folder.glob("attempt-*")]
        assert set(tried) == set(range(ATTEMPTED_TASKS))
        assert tried.count(FAILING) >= 2, "the failing task was not repeated"
        assert tried.count(SLOW) >= 2, "the slow task did not run twice"
        return sorted(db.scan(table).column("id").to_pylist())


def test_attempts_leave_no_duplicates(target: Target, driver: DriverProgram, tmp_path: Path) -> None:
    assert attempted(driver, target, tmp_path) == list(range(ATTEMPTED_ROWS))


def test_at_least_once_attempts_leave_duplicates(driver: DriverProgram, tmp_path: Path) -> None:
    """This proves that the attempts of the test above had written rows as well."""
    ids = attempted(driver, running_target("standalone"), tmp_path, delivery="at-least-once")
    assert len(ids) > ATTEMPTED_ROWS
    assert set(ids) == set(range(ATTEMPTED_ROWS))
