"""Failures of the disk or the system are logged by the server, not only returned to a client."""

from __future__ import annotations

import errno
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fluss.errors import FlussError
from fluss.model.descriptor import DatabaseDescriptor
from fluss.server.catalog import CatalogStore
from fluss.server.catalog.database_file import CATALOG_FILE_NAME
from fluss.server.storage.log.options import LogOptions
from tests.support.storage.bucket_logs import LogBench, batch_of, read_all
from tests.support.storage.faulty_files import NoSyncFiles


class NoMoreFiles(NoSyncFiles):
    """No file can be created, as at the limit of open files."""

    is_refusing = False

    def open_write(self, path: str) -> int:
        if self.is_refusing and not Path(path).exists():
            raise OSError(errno.EMFILE, "Too many open files", path)
        return super().open_write(path)


def test_a_segment_that_cannot_be_created(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = NoMoreFiles()
    bench = LogBench(tmp_path, files, options=LogOptions(segment_bytes=100))
    log = bench.open()
    bench.append_and_wait(log, batch_of(1, payload=b"x" * 100))
    files.is_refusing = True
    with pytest.raises(FlussError, match="Too many open files"):
        bench.append_and_wait(log, batch_of(1))
    said = [record.getMessage() for record in caplog.records if "Too many open files" in record.getMessage()]
    assert len(said) == 1
    assert log.directory in said[0]
    assert len(read_all(log)) == 1, "readers notice nothing"
    bench.close()


def test_a_catalog_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    store = CatalogStore(tmp_path / CATALOG_FILE_NAME)
    store.file.connection.execute("PRAGMA busy_timeout = 10")
    with closing(sqlite3.connect(tmp_path / CATALOG_FILE_NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(FlussError, match="was locked"):
            store.create_database("shop", DatabaseDescriptor(), 1)
    assert len(caplog.messages) == 1
    assert f"the catalog {tmp_path / CATALOG_FILE_NAME} was locked" in caplog.messages[0]
    store.create_database("shop", DatabaseDescriptor(), 1)
    store.close()
