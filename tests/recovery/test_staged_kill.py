"""`kill -9` at every step of staged commits: of the whole server, one tablet, the coordinator, and of drivers.

A driver commits batch after batch, each staged by several tasks, during the kills. A model has the expected content of
the table: every row of every committed batch, once, whatever was repeated. Rows are compared as sets by count and by
checksum, bucket by bucket.
"""

from __future__ import annotations

import asyncio
import random
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fluss
from fluss import FlussError, FlussTable
from fluss.api.staged import StagedAppender, StagedAttempt, abort_staged, commit_staged, last_committed
from fluss.client.two_phase.commit_calls import Commit, StagedFile
from fluss.model.paths import TableBucket
from tests.support.runner.lanes import rounds, seed
from tools.servers.ports import free_ports
from tools.servers.server_process import ServerProcess
from tools.waiting import wait_until

ROUNDS = rounds(gate=16, all_lanes=28)
BUCKETS = 3
TASKS = 2
ROWS_PER_TASK = 20_000
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
PATH = fluss.TablePath("fluss", "killed")
QUERY = "a query"
DEADLINE_SECONDS = 60.0
# Strings that compress badly, so that a batch takes several requests and several reads.
TEXTS = pa.array([random.Random(number).randbytes(24).hex() for number in range(ROWS_PER_TASK)])


def rows_of(batch_id: int, task: int) -> pa.RecordBatch:
    """The rows of a task: the same for every attempt, and no id twice in the whole table."""
    start = (batch_id * 100 + task) * ROWS_PER_TASK
    return pa.record_batch([pa.array(np.arange(start, start + ROWS_PER_TASK)), TEXTS], schema=SCHEMA)


def stage(table: FlussTable, batch_id: int, task: int) -> StagedAttempt:
    """One attempt of a task."""
    with StagedAppender(table, QUERY, batch_id) as appender:
        rows = rows_of(batch_id, task)
        for start in range(0, ROWS_PER_TASK, 5000):
            appender.write_arrow_batch(rows.slice(start, 5000))
        return appender.finish(DEADLINE_SECONDS)


def checksum(ids: np.ndarray) -> int:
    return zlib.crc32(np.sort(ids).tobytes())


def check(table: FlussTable, committed: int) -> None:
    """The table holds batches 0 to `committed` - 1, each row once."""
    found = asyncio.run(table.to_arrow())
    ids = found.column("id").to_numpy()
    wanted = np.concatenate(
        [np.empty(0, np.int64)]
        + [rows_of(batch, task).column(0).to_numpy() for batch in range(committed) for task in range(TASKS)]
    )
    assert len(ids) == len(wanted), f"{len(ids) / ROWS_PER_TASK} tasks' rows where {committed} batches are committed"
    assert checksum(ids) == checksum(wanted)


class Killer:
    """Kills a process after a while, in a thread; `with` waits for it and for the server to be back."""

    def __init__(self, server: ServerProcess, rng: random.Random) -> None:
        self._server = server
        self._rng = rng
        self._strikes = rng.randrange(4)

    def strike(self) -> None:
        """Kill something now, and start it again unless the supervisor does."""
        self._strikes += 1
        choice = self._strikes % 4
        if choice == 0:
            self._server.kill()
            self._server.start()
        else:
            self._server.kill_child(choice % 2)  # the tablet twice as often

    @contextmanager
    def soon(self, longest_seconds: float) -> Iterator[None]:
        """Kill at a random moment while the block runs, or right after it."""
        timer = threading.Timer(self._rng.uniform(0, longest_seconds), self.strike)
        timer.start()
        try:
            yield
        finally:
            timer.join()


class Driver:
    """Commits batches; every step is a way to go through one batch with a crash in it."""

    def __init__(self, table: FlussTable, killer: Killer, rng: random.Random) -> None:
        self.table = table
        self.killer = killer
        self.rng = rng
        self.batch_id = 0
        self.steps: list[Callable[[], None]] = [
            self.killed_while_staging,
            self.killed_before_the_commit,
            self.killed_in_the_commit,
            self.driver_dies_before_the_decision,
            self.driver_dies_after_the_decision,
            self.killed_right_after_the_decision,
            self.two_drivers,
        ]

    def attempts(self) -> list[StagedAttempt]:
        return [stage(self.table, self.batch_id, task) for task in range(TASKS)]

    def commit(self, attempts: list[StagedAttempt]) -> bool:
        return commit_staged(self.table, QUERY, self.batch_id, attempts, DEADLINE_SECONDS)

    def killed_while_staging(self) -> None:
        with self.killer.soon(0.1):
            attempts = self.attempts()
        assert self.commit(attempts)

    def killed_before_the_commit(self) -> None:
        attempts = self.attempts()
        self.killer.strike()
        assert self.commit(attempts)

    def killed_in_the_commit(self) -> None:
        attempts = self.attempts()
        with self.killer.soon(0.05):
            assert self.commit(attempts)

    def driver_dies_before_the_decision(self) -> None:
        """Prepared, then nothing; another driver repeats the batch, the first comes back late."""
        lost = self.attempts()
        self._prepare(lost)
        self.killer.strike()
        assert self.commit(self.attempts())
        assert not self.commit(lost)

    def driver_dies_after_the_decision(self) -> None:
        """The tablets finish by themselves; the repeated batch is dropped."""
        self._decide(self.attempts())
        assert last_committed(self.table, QUERY) == self.batch_id
        assert not self.commit(self.attempts())

    def killed_right_after_the_decision(self) -> None:
        self._decide(self.attempts())
        self.killer.strike()
        assert not self.commit([])

    def two_drivers(self) -> None:
        """Two drivers commit at the same time, with attempts of their own, while something is killed."""
        mine, others = self.attempts(), self.attempts()
        results: list[bool] = []
        drivers = [threading.Thread(target=lambda a=a: results.append(self.commit(a))) for a in (mine, others)]
        with self.killer.soon(0.05):
            for driver in drivers:
                driver.start()
            for driver in drivers:
                driver.join()
        assert sorted(results) == [False, True]
        abort_staged(self.table, QUERY, self.batch_id)

    def _commit_steps(self, attempts: list[StagedAttempt]) -> tuple[Commit, dict[TableBucket, list[StagedFile]]]:
        buckets: dict[TableBucket, list[StagedFile]] = {}
        for attempt in attempts:
            assert attempt.writer_id is not None
            for item in attempt.buckets:
                bucket = TableBucket(attempt.table_id, item.partition_id, item.bucket_id)
                file = StagedFile(bucket, attempt.writer_id, item.batch_count, item.size_bytes)
                buckets.setdefault(bucket, []).append(file)
        cluster = self.table._session.cluster
        return Commit(cluster, self.table._table, QUERY, self.batch_id, DEADLINE_SECONDS), buckets

    def _prepare(self, attempts: list[StagedAttempt]) -> None:
        commit, buckets = self._commit_steps(attempts)
        self.table._session.run(commit._insist(lambda: commit._prepare(buckets)), DEADLINE_SECONDS)

    def _decide(self, attempts: list[StagedAttempt]) -> None:
        """Do all steps of a commit except waiting for the rows."""
        commit, buckets = self._commit_steps(attempts)
        assert self.table._session.run(commit._prepare_and_decide(buckets), DEADLINE_SECONDS)


@contextmanager
def connected(address: str) -> Iterator[FlussTable]:
    settings = {
        "bootstrap.servers": address,
        "request-timeout": "10000",
        "writer.bucket.no-key-assigner": "round_robin",
    }
    connection = fluss.FlussConnection.open(fluss.Config(settings))
    try:
        yield asyncio.run(_table(connection))
    finally:
        connection.close()


async def _table(connection: fluss.FlussConnection) -> FlussTable:
    descriptor = fluss.TableDescriptor(fluss.Schema(SCHEMA), bucket_count=BUCKETS)
    await connection.get_admin().create_table(PATH, descriptor, True)
    return await connection.get_table(PATH)


def staged_files(data: Path) -> list[Path]:
    return list(data.rglob("*.staged"))


@pytest.mark.parametrize("tablets", [(2, 1), pytest.param((1, 3), marks=pytest.mark.all)])
def test_committed_batches_are_there_once_whatever_dies(tmp_path: Path, tablets: tuple[int, int]) -> None:
    rng = random.Random(f"{seed()} {tablets}")
    address = f"127.0.0.1:{free_ports(1)[0]}"
    config = {"staged.append.check-interval": "500ms"}
    per_server = ROUNDS // 4
    committed = 0
    for count in tablets:  # Buckets move to other tablets, and what is decided for them too.
        with ServerProcess(tmp_path / "data", bind=address, tablets=count, config=config) as server:
            with connected(address) as table:
                driver = Driver(table, Killer(server, rng), rng)
                if committed:  # Decided on the previous server; no other request asks for it to be appended.
                    assert not commit_staged(table, QUERY, committed - 1, [], DEADLINE_SECONDS)
                check(table, committed)
                for _ in range(per_server):
                    driver.batch_id = committed
                    driver.steps[committed % len(driver.steps)]()
                    committed += 1
                check(table, committed)
                driver.batch_id = committed
                driver._decide(driver.attempts())  # The next server, with another number of tablets, appends it.
                committed += 1
            server.kill()
    with ServerProcess(tmp_path / "data", bind=address, tablets=2, config=config), connected(address) as table:
        wait_until(lambda: not staged_files(tmp_path / "data"), "no staged file is left", DEADLINE_SECONDS)
        check(table, committed)
        assert last_committed(table, QUERY) == committed - 1
        assert last_committed(table, "another query") is None


def test_a_server_that_stays_away_fails_the_attempt_within_its_deadline(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with ServerProcess(tmp_path / "data", bind=address) as server, connected(address) as table:
        attempt = stage(table, 0, 0)
        server.kill()
        with pytest.raises(FlussError):
            commit_staged(table, QUERY, 0, [attempt], 0.5)
        server.start()
        assert commit_staged(table, QUERY, 0, [attempt], DEADLINE_SECONDS)
