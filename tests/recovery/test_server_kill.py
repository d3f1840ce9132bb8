"""`kill -9` of tablets and of the whole server, round after round, under concurrent writers and readers."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.support.runner.lanes import rounds, seed
from tests.support.tables.log_workload import Reader, Survivor, Writer, check_bucket, create_table, read_all
from tools.servers.server_process import ServerProcess
from tools.waiting import wait_until

ROUNDS = rounds(gate=8, all_lanes=50)
BUCKETS = 3
WRITERS_PER_BUCKET = 2
TABLE = "killed"


def _workload(server: ServerProcess, table_id: int) -> tuple[list[Writer], list[Reader]]:
    writers = [
        Writer(server.address, TABLE, table_id, bucket, number)
        for bucket in range(BUCKETS)
        for number in range(WRITERS_PER_BUCKET)
    ]
    readers = [Reader(server.address, TABLE, table_id, bucket) for bucket in range(BUCKETS)]
    for thread in (*writers, *readers):
        thread.start()
    return writers, readers


def _check_everything(server: ServerProcess, table_id: int, writers: list[Writer], readers: list[Reader]) -> None:
    for bucket in range(BUCKETS):
        rows = read_all(server.address, TABLE, table_id, bucket)
        check_bucket(rows, [writer for writer in writers if writer.bucket == bucket], readers[bucket])


def _wait_for_progress(writers: list[Writer]) -> None:
    """Wait until every writer has an answer again, so that each kill really happens during writes."""
    before = [writer.acknowledged for writer in writers]
    wait_until(
        lambda: all(
            writer.error is not None or writer.acknowledged > known
            for writer, known in zip(writers, before, strict=True)
        ),
        "all writers to make progress after a crash",
        60.0,
    )


@pytest.mark.parametrize("segment_size", [pytest.param("1gb", marks=pytest.mark.all), "64kb"])
def test_nothing_acknowledged_is_lost(tmp_path: Path, segment_size: str) -> None:
    generator = random.Random(f"{seed()} {segment_size}")
    server = ServerProcess(tmp_path / "data", tablets=2, config={"log.segment.file-size": segment_size})
    with server:
        table_id = create_table(server.address, TABLE, BUCKETS)
        writers, readers = _workload(server, table_id)
        for round_number in range(ROUNDS // 2):
            _wait_for_progress(writers)
            time.sleep(generator.uniform(0.0, 0.15))  # the crash comes at a random moment; nothing waits for it
            if round_number % 2:
                server.kill()
                server.start()
            else:
                server.kill_child(generator.randrange(3))
        _wait_for_progress(writers)
        workers: list[Survivor] = [*writers, *readers]
        for worker in workers:
            worker.stopping.set()
        for worker in workers:
            worker.finish()
        _check_everything(server, table_id, writers, readers)
        server.kill()
        server.start()
        _check_everything(server, table_id, writers, readers)
        assert all(writer.acknowledged > 0 for writer in writers)
