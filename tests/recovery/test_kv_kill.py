"""`kill -9` of tablets and of the whole server under upserts, deletes, partial updates and lookups."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.support.runner.lanes import rounds, seed
from tests.support.tables.kv_workload import (
    KvLooker,
    KvWriter,
    Partition,
    check_changelog,
    check_writer,
    create_partitioned_table,
    create_table,
    leader,
)
from tests.support.tables.log_workload import CONNECTION_TIMEOUT_SECONDS, Survivor
from tools.servers.server_process import ServerProcess
from tools.servers.wire_client import WireClient
from tools.waiting import wait_until

KILLS = rounds(gate=12, all_lanes=52) // 2
KILLS_BETWEEN_CLEAN_STOPS = 8
BUCKETS = 2
TABLE = "killed"
OPTIONS = {"log.segment.file-size": "256kb"}
Place = tuple[Partition | None, int]


class Workload:
    """Writers in all buckets of a table, and for each of them a task that looks up its rows."""

    def __init__(self, server: ServerProcess, table_id: int, places: list[Place], writers_per_bucket: int) -> None:
        self.server = server
        self.places = places
        self.writers = [
            KvWriter(server.address, TABLE, table_id, bucket, place * writers_per_bucket + number, partition)
            for place, (partition, bucket) in enumerate(places)
            for number in range(writers_per_bucket)
        ]
        self.lookers = [KvLooker(writer) for writer in self.writers]
        for thread in self.threads:
            thread.start()

    @property
    def threads(self) -> list[Survivor]:
        return [*self.writers, *self.lookers]

    def wait_for_progress(self) -> None:
        """Wait until every writer and every lookup task has a new answer."""
        before = self._progress()
        wait_until(
            lambda: (
                any(thread.error for thread in self.threads)
                or all(now > known for now, known in zip(self._progress(), before, strict=True))
            ),
            "all writers and lookups to make progress after a crash",
            60.0,
        )

    def _progress(self) -> list[int]:
        return [writer.acknowledged for writer in self.writers] + [looker.lookups for looker in self.lookers]

    def finish(self, *, abandoned: bool = False) -> None:
        """Stop all tasks. Abandoned writers do not resend rows that were not acknowledged."""
        for writer in self.writers:
            if abandoned:
                writer.abandoned.set()
        for thread in self.threads:
            thread.finish()

    def check(self) -> None:
        """Check, after all writers have stopped, that acknowledged and found rows are there, also in the changelog."""
        found = {looker.writer.number: looker.batches for looker in self.lookers}
        for partition, bucket in self.places:
            mine = [writer for writer in self.writers if (writer.partition, writer.bucket) == (partition, bucket)]
            host, port = leader(self.server.address, TABLE, bucket, partition)
            with WireClient(host, port, CONNECTION_TIMEOUT_SECONDS) as client:
                applied = {writer.number: check_writer(client, writer) for writer in mine}
                check_changelog(client, mine[0].table_id, bucket, mine, applied)
            for number, batches in applied.items():
                assert batches >= found[number], f"writer {number}: a lookup had found {found[number]} batches"


def crash(server: ServerProcess, generator: random.Random, number: int) -> None:
    """One `kill -9` of the whole server, or of one of its processes, which the others survive."""
    if number % 2:
        server.kill()
        server.start()
    else:
        server.kill_child(generator.randrange(3))


@pytest.mark.parametrize("shape", [pytest.param("buckets", marks=pytest.mark.all), "partitions"])
def test_exactly_the_acknowledged_rows_are_there(tmp_path: Path, shape: str) -> None:
    generator = random.Random(f"{seed()} {shape}")
    with ServerProcess(tmp_path / "data", tablets=2, config=OPTIONS) as server:
        if shape == "buckets":
            table_id = create_table(server.address, TABLE, BUCKETS)
            work = Workload(server, table_id, [(None, bucket) for bucket in range(BUCKETS)], writers_per_bucket=2)
        else:
            plain = {"table.log.arrow.compression.type": "NONE"}
            table_id, partitions = create_partitioned_table(server.address, TABLE, BUCKETS, ["eu", "us"], **plain)
            places: list[Place] = [(partition, bucket) for partition in partitions for bucket in range(BUCKETS)]
            work = Workload(server, table_id, places, writers_per_bucket=1)
        for number in range(KILLS - 2):
            work.wait_for_progress()
            time.sleep(generator.uniform(0.0, 0.15))  # the crash comes at a random moment; nothing waits for it
            crash(server, generator, number)
            if number % KILLS_BETWEEN_CLEAN_STOPS == 0:
                work.wait_for_progress()
                server.stop()
                server.start()
        work.wait_for_progress()
        server.kill()
        work.finish(abandoned=True)  # what was in flight now is never sent again: it is there or not, but never in part
        server.start()
        work.check()
        server.kill()
        server.start()
        work.check()
        assert all(count > 0 for count in work._progress())
