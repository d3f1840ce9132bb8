"""`kill -9` of tablets and of the whole server under writers of upserts, deletes and partial updates.

`FLUSS_KILL_ROUNDS` sets the number of rounds (the soak command asks for many more).
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.support.kv_workload import KvWriter, check_changelog, check_writer, create_table
from tests.support.log_workload import CONNECTION_TIMEOUT_SECONDS, leaders
from tests.support.server_process import ServerProcess, wait_until
from tests.support.wire import WireClient

ROUNDS = int(os.environ.get("FLUSS_KILL_ROUNDS", "50"))
BUCKETS = 2
WRITERS_PER_BUCKET = 2
TABLE = "killed"


def _wait_for_progress(writers: list[KvWriter]) -> None:
    before = [writer.acknowledged for writer in writers]
    wait_until(
        lambda: all(
            writer.error is not None or writer.acknowledged > known
            for writer, known in zip(writers, before, strict=True)
        ),
        "all writers to make progress after a crash",
        60.0,
    )


def _check(server: ServerProcess, writers: list[KvWriter]) -> None:
    """Everything acknowledged is there, by key and in the changelog. Nobody writes any more."""
    for bucket, (host, port) in leaders(server.address, TABLE).items():
        mine = [writer for writer in writers if writer.bucket == bucket]
        with WireClient(host, port, CONNECTION_TIMEOUT_SECONDS) as client:
            for writer in mine:
                check_writer(client, writer)
            check_changelog(client, writers[0].table_id, bucket, mine)


@pytest.mark.parametrize("properties", [{}, {"table.log.arrow.compression.type": "NONE"}], ids=["zstd", "plain"])
def test_exactly_the_acknowledged_rows_are_there(tmp_path: Path, properties: dict[str, str]) -> None:
    generator = random.Random(len(properties))
    with ServerProcess(tmp_path / "data", tablets=2, config={"log.segment.file-size": "256kb"}) as server:
        table_id = create_table(server.address, TABLE, BUCKETS, **properties)
        writers = [
            KvWriter(server.address, TABLE, table_id, bucket, bucket * WRITERS_PER_BUCKET + number)
            for bucket in range(BUCKETS)
            for number in range(WRITERS_PER_BUCKET)
        ]
        for writer in writers:
            writer.start()
        for round_number in range(ROUNDS // 2):
            _wait_for_progress(writers)
            time.sleep(generator.uniform(0.0, 0.15))  # the crash comes at a random moment; nothing waits for it
            if round_number % 8 == 7:
                server.stop()
                server.start()
            elif round_number % 2:
                server.kill()
                server.start()
            else:
                server.kill_child(generator.randrange(3))
        _wait_for_progress(writers)
        for writer in writers:
            writer.stopping.set()
        for writer in writers:
            writer.finish()
        _check(server, writers)
        server.kill()
        server.start()
        _check(server, writers)
        assert all(writer.acknowledged > 0 for writer in writers)
