"""Log lines about buckets that cannot be opened: one per damaged bucket, and one event for all on a full disk."""

from __future__ import annotations

import asyncio
import errno
import logging
from pathlib import Path

import pytest

from fluss.errors import ErrorCode
from fluss.protocol.api_keys import ApiKey
from fluss.server.runtime.log_output import REPETITIONS_SHOWN, Repetitions
from fluss.server.storage.files import FileSystem
from tests.support.harness.tablet import TabletHarness
from tests.support.servers.log_cluster import arrow_batch

BUCKETS = 40


class Refusing(FileSystem):
    """A disk on which no bucket directory can be read."""

    def __init__(self, number: int) -> None:
        self._number = number

    def list_directory(self, path: str) -> list[str]:
        if "log-" in path:
            raise OSError(self._number, "the disk refuses")
        return super().list_directory(path)


class Lines(logging.Handler):
    """Keeps the log lines about openings."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.addFilter(Repetitions(self))

    def emit(self, record: logging.LogRecord) -> None:
        if "cannot open" in str(record.msg):
            self.texts.append(record.getMessage())


@pytest.mark.parametrize(
    ("number", "lines", "code"),
    [
        (errno.ENOSPC, REPETITIONS_SHOWN, ErrorCode.DISK_WRITE_LOCKED),
        (errno.EDQUOT, REPETITIONS_SHOWN, ErrorCode.DISK_WRITE_LOCKED),
        (errno.EMFILE, REPETITIONS_SHOWN, ErrorCode.STORAGE_EXCEPTION),
        (errno.EIO, BUCKETS, ErrorCode.STORAGE_EXCEPTION),
    ],
)
def test_a_shortage_is_a_few_lines_and_a_count(tmp_path: Path, number: int, lines: int, code: ErrorCode) -> None:
    found = Lines()
    logger = logging.getLogger("fluss.server.tablet.buckets.registry")

    async def scenario() -> None:
        async with TabletHarness(tmp_path, files=Refusing(number)) as tablet:
            table = tablet.create_table("t", bucket_count=BUCKETS)
            answer = tablet.parsed(ApiKey.PRODUCE_LOG, await tablet.produce(table, *[arrow_batch([1])] * BUCKETS))
            assert {bucket.error_code for bucket in answer.buckets_resp} == {int(code)}
            is_full = code is ErrorCode.DISK_WRITE_LOCKED
            assert all(("free some space" in bucket.error_message) is is_full for bucket in answer.buckets_resp)

    logger.addHandler(found)
    try:
        asyncio.run(scenario())
    finally:
        logger.removeHandler(found)
    assert len(found.texts) == lines
