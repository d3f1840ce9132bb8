"""Copies of the catalog's contents outside of it, in case it is lost: a `table.json` per table, and `catalog.mark`.

Theory. Everything happens after the catalog's own commit, so no copy is ever ahead of the catalog on disk. A table's
record is written in the step that changes the table, so it exists when the change is answered; `sync` makes it durable
soon afterwards, in a thread. A change of a database affects all of its tables, maybe thousands: `sync` writes these a
few at a time, and until then the mark, which has the databases, is newer than the records. A power loss in between
leaves an older record, or a torn one that counts as none; the next start writes it again. A copy that cannot be written
(no space) is retried later, and the change itself succeeds. All methods are called in the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from fluss.errors import ErrorCode, FlussError
from fluss.server.catalog import CatalogStore
from fluss.server.catalog.mark import MARKED_COUNTERS, databases_for_mark, write_mark
from fluss.server.catalog.table_rows import directory_of, table_record
from fluss.server.runtime.time_slices import TimeSlices
from fluss.server.storage.directory.table_directories import mark_dropped
from fluss.server.storage.directory.table_record import RECORD_FILE_NAME, TableRecord, read_record, record_to_json
from fluss.server.storage.files import (
    FileSystem,
    make_directories,
    make_missing_directories,
    write_file_atomically,
)

logger = logging.getLogger(__name__)

SYNC_INTERVAL_MS = 1000
# How many records whose write has failed are retried in the step of another change.
AGAIN_LIMIT = 10


class TableCopies:
    """Keeps the `table.json` of every table and `catalog.mark` up to date."""

    def __init__(self, data_dir: Path, store: CatalogStore, files: FileSystem | None = None) -> None:
        self._data_dir = data_dir
        self._store = store
        self._files = files or FileSystem()
        self._directories: dict[int, Path] = {}
        self._unwritten: set[int] = set()
        self._unsynced: set[Path] = set()
        self._marked: dict[str, int] = {}
        self._databases: dict[str, str | None] = {}
        self._is_failing = False

    def start(self) -> None:
        """Write missing and outdated copies, and follow all changes from now on."""
        try:
            self._store.ensure_catalog_id()
        except FlussError as error:
            if error.error_code != ErrorCode.DISK_WRITE_LOCKED:
                raise
        for (table_id,) in self._store.file.connection.execute("SELECT table_id FROM tables").fetchall():
            record = table_record(self._store.file.connection, table_id)
            if record is not None and not _is_unchanged(read_record(self._directory(record)), record):
                self._unwritten.add(table_id)
        self._write_again()
        self._write_mark()
        self._store.on_table_change = self.table_changed
        self._store.on_database_change = self.tables_changed

    def table_changed(self, table_id: int) -> None:
        """Copy a table whose change or drop has become durable."""
        self._unwritten.add(table_id)
        if self._write_one(table_id):
            self._write_again(AGAIN_LIMIT)

    def tables_changed(self, table_ids: Iterable[int]) -> None:
        """Schedule copies of the tables of a database whose change or drop has become durable."""
        self._unwritten.update(table_ids)

    async def sync(self) -> None:
        """Make the written copies durable, and retry those that could not be written."""
        try:
            await self._sync()
        except (FlussError, sqlite3.Error) as error:
            self._failed("copies of the catalog's contents", error)

    async def _sync(self) -> None:
        time_slices = TimeSlices()
        for table_id in sorted(self._unwritten):
            if not self._write_one(table_id):
                break
            await time_slices.yield_if_over()
        unsynced, self._unsynced = self._unsynced, set()
        if unsynced:
            await asyncio.get_running_loop().run_in_executor(None, self._sync_files, unsynced)
        self._write_mark()

    def close(self) -> None:
        """Write the last `catalog.mark`, at an orderly stop."""
        self._write_mark()

    def _directory(self, record: TableRecord) -> Path:
        directory = self._data_dir / directory_of(record.database_name, record.table_name, record.table_id)
        self._directories[record.table_id] = directory
        return directory

    def _write_again(self, limit: int | None = None) -> None:
        for table_id in sorted(self._unwritten)[:limit]:
            if not self._write_one(table_id):
                return

    def _write_one(self, table_id: int) -> bool:
        record = table_record(self._store.file.connection, table_id)
        if record is None:
            self._dropped(table_id)
        elif not self._write(record):
            return False
        self._unwritten.discard(table_id)
        return True

    def _dropped(self, table_id: int) -> None:
        """Mark the directory as dropped: its files are deleted later, and the catalog may be lost before that."""
        directory = self._directories.pop(table_id, None)
        if directory is not None:
            mark_dropped(directory, self._files)

    def _write(self, record: TableRecord) -> bool:
        directory = self._directory(record)
        path = str(directory / RECORD_FILE_NAME)
        try:
            make_missing_directories(self._files, str(directory))
            write_file_atomically(self._files, path, record_to_json(record), is_synced=False)
        except OSError as error:
            self._failed(f"the record of table {record.name} in {directory}", error)
            return False
        self._unsynced.add(directory)
        return True

    def _sync_files(self, directories: set[Path]) -> None:
        """Sync records; called in a thread. A missing directory belonged to a dropped table."""
        for directory in directories:
            try:
                descriptor = self._files.open_read(str(directory / RECORD_FILE_NAME))
                try:
                    self._files.fdatasync(descriptor)
                finally:
                    self._files.close(descriptor)
                self._files.sync_directory(str(directory))
                make_directories(self._files, str(directory))  # also sync the names of its parents
            except FileNotFoundError:
                continue
            except OSError as error:
                self._failed(f"{directory / RECORD_FILE_NAME} was not synced", error)

    def _write_mark(self) -> None:
        file = self._store.file
        catalog_id = self._store.catalog_id
        counters = {name: file.counter(name) for name in MARKED_COUNTERS}
        if counters == self._marked or catalog_id == 0:
            return
        try:
            if not self._marked or counters["change"] != self._marked["change"]:
                databases = dict(file.connection.execute("SELECT name, descriptor FROM databases"))
                self._databases = databases_for_mark(databases)
            write_mark(self._data_dir, catalog_id, counters, self._files, self._databases)
        except OSError as error:
            self._failed("the mark of the catalog", error)
            return
        self._marked = counters
        self._is_failing = False

    def _failed(self, what: str, error: Exception) -> None:
        if not self._is_failing:
            self._is_failing = True
            logger.warning("cannot write %s, will try again: %s", what, error)


def _is_unchanged(there: TableRecord | None, record: TableRecord) -> bool:
    """True if the records differ at most in the change number, which changes of other tables raise too."""
    if there is None:
        return False
    return {**vars(there), "change": 0} == {**vars(record), "change": 0}
