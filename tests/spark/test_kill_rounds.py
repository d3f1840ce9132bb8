"""A pipeline of real processes whose parts are killed all the time: no row is lost, none is there twice.

A server, a Spark program (`kill_job`) and a writer that never pauses. In every round both sinks must first get further;
then, at a random moment, one of these dies by `kill -9`: the whole Spark program, which is started again on its
checkpoints; a Python worker of its executor; the whole server, a tablet or the coordinator, which come back. At the end
both sinks are compared with what was written, by count and by checksum.

One death of each kind takes a minute or two on two cores; `FLUSS_KILL_ROUNDS` asks for more rounds (a fifth of it; 100
for 20), as `python3 dev.py soak` does. `FLUSS_KILL_SEED` repeats the kinds and moments of a run; the seed is printed.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyarrow as pa

import fluss
from tests.support.peers import free_ports
from tests.support.server_process import ServerProcess, wait_until

ROUNDS = max(5, int(os.environ.get("FLUSS_KILL_ROUNDS", "0")) // 5)
# One of each in every five rounds, in random order: starting Spark again takes longer than all the others together.
KINDS = ("driver", "worker", "worker", "server", "part of the server")
# A little less than a test may take at all, so that a failure shows what Spark said.
PROGRESS_SECONDS = 0.8 * float(os.environ.get("FLUSS_TEST_LIMIT_SECONDS", "300"))
LONGEST_PAUSE_SECONDS = 0.6
WRITER_PAUSE_SECONDS = 0.1
ROWS_PER_APPEND = 50
REPOSITORY = Path(__file__).parents[2]
SOURCE, LOG_SINK, KEY_SINK = "fluss.killed_source", "fluss.killed_log", "fluss.killed_keys"
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
SINK_SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("text", pa.string()), ("rest", pa.int64())])
SETTINGS = {
    "spark.driver.memory": "700m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}

Row = tuple[int, str, int]


def checksum(rows: Iterable[Row]) -> str:
    """Independent of the order, not of how often a row is there."""
    total = sum(int.from_bytes(hashlib.sha256(repr(row).encode()).digest()[:8], "big") for row in rows)
    return f"{total % 2**64:016x}"


class Writer(threading.Thread):
    """Appends rows until it is told to stop; a server that is away only makes it wait."""

    def __init__(self, db: fluss.Database, seed: int) -> None:
        super().__init__(name="writer", daemon=True)
        self._db, self._rng, self._ended = db, random.Random(seed), threading.Event()
        self.rows: list[tuple[int, str]] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ended.wait(WRITER_PAUSE_SECONDS):
                start = len(self.rows)
                rows = [(start + n, self._rng.randbytes(self._rng.randrange(30)).hex()) for n in range(ROWS_PER_APPEND)]
                self._db.append(SOURCE, [{"id": number, "text": text} for number, text in rows])
                self.rows.extend(rows)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        """Everything that was begun is written when this returns."""
        self._ended.set()
        self.join(PROGRESS_SECONDS)
        assert not self.is_alive(), "the last append does not end"
        if self.error is not None:
            raise self.error


class Checkpoint:
    """What Spark has written down about a query."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def committed(self) -> int:
        """The last finished batch, -1 before the first."""
        commits = self.path / "commits"
        names = [file.name for file in commits.iterdir()] if commits.exists() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def rows(self) -> int:
        """Rows of the source that finished batches have read."""
        batch = self.committed()
        if batch < 0:
            return 0
        offsets = json.loads((self.path / "offsets" / str(batch)).read_text().splitlines()[2])
        return sum(offsets["buckets"])


class SparkProgram:
    """The driver with everything that it has started: killed and started again."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.checkpoints = [Checkpoint(folder / "log"), Checkpoint(folder / "keys")]
        sinks = dict(zip((LOG_SINK, KEY_SINK), (str(checkpoint.path) for checkpoint in self.checkpoints), strict=True))
        settings = {**SETTINGS, "spark.sql.fluss.bootstrap.servers": server.address}
        job = {"settings": settings, "source": SOURCE, "sinks": sinks}
        self._command = [sys.executable, "-m", "tests.spark.kill_job", json.dumps(job)]
        self._log = folder / "driver.log"
        self._left: list[psutil.Process] = []
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=REPOSITORY, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """`kill -9` of the driver and its Java process. Workers notice by themselves, a moment later."""
        self._left += psutil.Process(self._process.pid).children(recursive=True)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def workers(self) -> list[psutil.Process]:
        """The Python processes in which tasks run: children of the one that Spark forks them from."""
        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            try:
                parent = process.parent()
                if parent is not None and all("pyspark.worker" in each.cmdline() for each in (process, parent)):
                    found.append(process)
            except psutil.NoSuchProcess:  # ended meanwhile
                continue
        return found

    def kill_worker(self, rng: random.Random) -> None:
        wait_until(self.workers, "a Python worker runs", PROGRESS_SECONDS)
        rng.choice(self.workers()).kill()

    def wait_for_progress(self, batches: int = 1) -> None:
        """Until both queries have finished so many batches from now on."""
        wanted = [checkpoint.committed() + batches for checkpoint in self.checkpoints]
        self._wait(
            lambda: all(c.committed() >= n for c, n in zip(self.checkpoints, wanted, strict=True)), "new batches"
        )

    def wait_for_rows(self, count: int) -> None:
        """Until both queries have read so many rows and written them."""
        self._wait(lambda: all(checkpoint.rows() >= count for checkpoint in self.checkpoints), f"{count} rows")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            assert self._process.poll() is None, f"Spark ended by itself: {self.log_text()}"
            return condition()

        try:
            wait_until(holds, what, PROGRESS_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_text()}") from error

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")[-8000:]

    def end(self) -> None:
        """Nothing of it is left afterwards."""
        if self._process.poll() is None:
            self.kill()
        _, alive = psutil.wait_procs(self._left, timeout=30)
        for process in alive:
            process.kill()


@contextmanager
def pipeline(folder: Path, seed: int) -> Iterator[tuple[ServerProcess, SparkProgram, Writer, fluss.Database]]:
    (port,) = free_ports(1)
    with (
        ServerProcess(folder / "data", bind=f"127.0.0.1:{port}", tablets=2) as server,
        fluss.connect(server.address) as db,
    ):
        db.create_table(SOURCE, SCHEMA, bucket_count=3)
        db.create_table(LOG_SINK, SINK_SCHEMA, bucket_count=2)
        db.create_table(KEY_SINK, SINK_SCHEMA, primary_keys=["id"], bucket_count=2)
        writer = Writer(db, seed)
        writer.start()
        spark = SparkProgram(server, folder)
        try:
            yield server, spark, writer, db
        finally:
            spark.end()
            writer.end()


def strike(kind: str, rng: random.Random, server: ServerProcess, spark: SparkProgram) -> None:
    """One death; what died is started again unless somebody else does that."""
    if kind == "driver":
        spark.kill()
        spark.start()
    elif kind == "worker":
        spark.kill_worker(rng)
    elif kind == "server":
        server.kill()
        server.start()
    else:
        server.kill_child(rng.randrange(3))


def test_no_round_loses_or_repeats_a_row(tmp_path: Path) -> None:
    seed = int(os.environ.get("FLUSS_KILL_SEED") or random.randrange(2**32))
    print(f"FLUSS_KILL_SEED={seed}")
    rng = random.Random(seed)
    struck: Counter[str] = Counter()
    with pipeline(tmp_path, seed) as (server, spark, writer, db):
        while sum(struck.values()) < ROUNDS:
            for kind in rng.sample(KINDS, len(KINDS)):
                spark.wait_for_progress()
                time.sleep(rng.uniform(0, LONGEST_PAUSE_SECONDS))  # any moment of a batch, of a commit or between them
                strike(kind, rng, server, spark)
                struck[kind] += 1
                print(f"round {sum(struck.values())}: {kind}; {len(writer.rows)} rows so far")
        spark.wait_for_progress()
        writer.end()
        spark.wait_for_rows(len(writer.rows))
        spark.end()
        wanted = [(number, text.upper(), number % 7) for number, text in writer.rows]
        for table in (LOG_SINK, KEY_SINK):
            found = [tuple(row.values()) for row in db.to_arrow(table).to_pylist()]
            assert len(found) == len(wanted), f"{table}: {len(found)} rows, {len({row[0] for row in found})} ids"
            assert checksum(found) == checksum(wanted), table
    assert all(struck[kind] >= ROUNDS // len(KINDS) for kind in KINDS)
