"""Staged appends on a disk that is really full: staging and decisions fail with an error, decided rows wait for room.

Needs the right to mount (Linux, root), like `test_full_disk`.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from fluss import ErrorCode, FlussError, FlussTable
from fluss.api.staged import StagedAppender, StagedAttempt, commit_staged, last_committed
from fluss.client.two_phase.commit_calls import Commit, StagedFile
from fluss.model.paths import TableBucket
from tests.recovery.test_full_disk import disk, fill
from tools.servers.server_process import ServerProcess
from tools.waiting import wait_until

__all__ = ["disk"]
QUERY = "query"
ROWS = 1000
TEXT_BYTES = 1000
MOST_ATTEMPTS = 100
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def stage(table: FlussTable, batch_id: int) -> StagedAttempt:
    """Stage about a megabyte that does not compress."""
    rows = [os.urandom(TEXT_BYTES // 2).hex() for _ in range(ROWS)]
    with StagedAppender(table, QUERY, batch_id) as appender:
        appender.write_arrow_batch(pa.record_batch([pa.array(range(ROWS), pa.int64()), rows], schema=SCHEMA))
        return appender.finish(30)


def stage_until_refused(table: FlussTable) -> tuple[list[StagedAttempt], FlussError]:
    """Attempts that fit, and the error of the one that did not."""
    staged: list[StagedAttempt] = []
    while len(staged) < MOST_ATTEMPTS:
        try:
            staged.append(stage(table, 0))
        except FlussError as error:
            return staged, error
    raise AssertionError("the disk takes everything")


def count(table: FlussTable) -> int:
    return int(asyncio.run(table.to_arrow(["id"])).num_rows)


async def new_table(connection: fluss.FlussConnection) -> FlussTable:
    properties = {"table.log.arrow.compression.type": "NONE"}
    descriptor = fluss.TableDescriptor(fluss.Schema(SCHEMA), bucket_count=1, properties=properties)
    await connection.get_admin().create_table(fluss.TablePath("fluss", "t"), descriptor)
    return await connection.get_table("fluss.t")


def decide(table: FlussTable, attempt: StagedAttempt) -> None:
    """Prepare and decide, without waiting for the rows."""
    assert attempt.writer_id is not None
    (item,) = attempt.buckets
    bucket = TableBucket(attempt.table_id, None, 0)
    files = {bucket: [StagedFile(bucket, attempt.writer_id, item.batch_count, item.size_bytes)]}
    commit = Commit(table._session.cluster, table._table, QUERY, attempt.batch_id, 30)
    assert table._session.run(commit._prepare_and_decide(files), 30)


def test_a_full_disk_loses_nothing_and_writes_resume_by_themselves(disk: Path) -> None:
    filler = disk / "filler"
    with ServerProcess(disk / "server", tablets=1) as server:
        connection = fluss.FlussConnection.open(fluss.Config({"bootstrap.servers": server.address}))
        with connection:
            table = asyncio.run(new_table(connection))
            staged, error = stage_until_refused(table)
            assert error.error_code == ErrorCode.DISK_WRITE_LOCKED
            assert len(staged) > 3
            # What is staged leaves room for itself in the log.
            assert commit_staged(table, QUERY, 0, staged, 30)
            assert count(table) == len(staged) * ROWS

            waiting = stage(table, 1)
            fill(filler)
            with pytest.raises(FlussError) as caught:
                commit_staged(table, QUERY, 1, [waiting], 5)
            assert caught.value.error_code == ErrorCode.DISK_WRITE_LOCKED
            assert last_committed(table, QUERY) == 0
            filler.unlink()

            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            fill(filler, free - 8 * 1024 * 1024)  # the reserve is left: the decision fits, the rows do not
            decide(table, waiting)
            with pytest.raises(FlussError) as caught:
                commit_staged(table, QUERY, 1, [], 5)
            assert caught.value.error_code == ErrorCode.REQUEST_TIME_OUT
            assert "no space left" in caught.value.message
            assert count(table) == len(staged) * ROWS
            server.kill()
            server.start()
        filler.unlink()
        with fluss.FlussConnection.open(fluss.Config({"bootstrap.servers": server.address})) as connection:
            table = asyncio.run(connection.get_table("fluss.t"))
            wait_until(lambda: count(table) == (len(staged) + 1) * ROWS, "the decided rows are appended")
            assert not commit_staged(table, QUERY, 1, [stage(table, 1)], 30)
            assert count(table) == (len(staged) + 1) * ROWS
