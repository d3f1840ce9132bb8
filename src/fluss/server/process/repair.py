"""Rebuilds a lost catalog from a safety copy and from the records in the directories of the tables.

`plan_catalog` only reads; `apply_catalog` is called if the user confirms. The plan takes the newest undamaged safety
copy, if any, and adds what the copy lacks: tables that were created or altered after it, from their records
(`table.json`), and databases that the mark knows. The new catalog is built in a separate file, which gets its name when
it is complete; the old files stay beside it as `catalog.replaced-TIME...`, and no directory of a table is touched. Ids
are never reused: all counters are raised above those in the mark, the records and the directories.

The caller has locked the data directory; no other process has it open.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import DatabaseDescriptor, database_descriptor_to_json, dump_json, load_json
from fluss.model.schema import schema_from_json
from fluss.server.catalog import CatalogStore
from fluss.server.catalog.database_file import CATALOG_FILE_NAME, DatabaseFile
from fluss.server.catalog.drop_records import TABLE_KIND
from fluss.server.catalog.mark import CATALOG_ID_COUNTER, MARK_FILE_NAME, CatalogMark, read_mark
from fluss.server.catalog.offline_catalog import OfflineCatalog, read_offline_catalog
from fluss.server.catalog.row_number_records import row_number_counter
from fluss.server.catalog.safety_copies import list_copies
from fluss.server.catalog.staged_records import REVOKED_FLOOR_COUNTER
from fluss.server.catalog.table_rows import put_table
from fluss.server.coordinator.tables.table_copies import TableCopies
from fluss.server.storage.directory.table_directories import (
    DATA_DIRECTORY_NAME,
    FoundDirectory,
    bucket_directories,
    list_directories,
)
from fluss.server.storage.directory.table_record import TableRecord, read_record
from fluss.server.storage.files import FileSystem
from fluss.server.storage.staged_files import staged_writer_ids

# The mark is up to a second old, and tablets reserve writer ids in blocks: far fewer than this are used in a second.
WRITER_IDS_SKIPPED = 10_000_000
NEW_CATALOG_NAME = "catalog.repaired.tmp"
# For a database whose descriptor did not fit into the mark.
NO_DESCRIPTOR = dump_json(database_descriptor_to_json(DatabaseDescriptor())).decode()

LOST_WITH_A_COPY = (
    "permissions, run-time options, cursors and leases that were changed after the copy",
    "decisions about staged rows after the copy",
    "lake snapshots and snapshots of primary-key tables that were registered after the copy",
)
LOST_WITHOUT_A_COPY = (
    "permissions, run-time options and server tags",
    "cursors and leases",
    "decisions about staged rows",
    "lake offsets of tables, and registered snapshots of primary-key tables",
    "databases without tables, except for those named here",
)


@dataclass(frozen=True)
class CatalogPlan:
    """The contents of the repaired catalog."""

    data_dir: Path
    copy: Path | None
    """The safety copy to start from; None if only the directories of the tables are used."""
    stored: OfflineCatalog | None
    restored: tuple[TableRecord, ...]
    """Tables that are created or updated from the records in their directories."""
    unrestored: tuple[FoundDirectory, ...]
    """Directories of tables that are neither in the copy nor have a record."""
    dropped: frozenset[int]
    """Tables of the copy that were dropped after it, according to their directories."""
    without_directory: int
    """The number of tables of the copy that have no directory: they will be empty."""
    staged_files: int
    mark: CatalogMark | None

    @property
    def lost(self) -> Sequence[str]:
        """Descriptions of what cannot be restored."""
        return LOST_WITHOUT_A_COPY if self.copy is None else LOST_WITH_A_COPY

    @property
    def databases(self) -> list[str]:
        """The databases that are only in the mark, neither in the copy nor in the record of a table."""
        if self.mark is None:
            return []
        known = {record.database_name for record in self.restored}
        return sorted(self.mark.databases.keys() - known - (self.stored.databases if self.stored else frozenset()))

    def lines(self) -> list[str]:
        """Return a description of the plan for the user, line by line."""
        source = (
            f"the safety copy {self.copy}" if self.copy else "the directories of the tables (there is no safety copy)"
        )
        lines = [f"from {source}:"]
        if self.stored is not None:
            lines.append(
                f"  {len(self.stored.tables)} tables and {len(self.stored.partitions)} partitions are in the copy"
            )
        lines += [
            f"  {record.name}: table id {record.table_id}, {len(record.schemas)} schemas, "
            f"{len(record.partitions)} partitions, from its directory"
            for record in self.restored
        ]
        lines += [f"  database {name}, from {MARK_FILE_NAME}" for name in self.databases]
        if self.dropped:
            lines.append(f"  {len(self.dropped)} tables of the copy were dropped later, according to their directories")
        if self.without_directory:
            lines.append(f"  {self.without_directory} tables of the copy have no directory: they will be empty")
        lines += [f"  not restored, unknown table: {item.path}" for item in self.unrestored]
        lines += [f"  lost: {what}" for what in self.lost]
        if self.staged_files:
            lines.append(f"  {self.staged_files} staged files exist: rows of commits that may already be decided")
        return lines


def plan_catalog(data_dir: Path, *, use_copy: bool = True) -> CatalogPlan:
    """Inspect the data directory and return a plan; changes nothing."""
    found = [item for item in list_directories(data_dir / DATA_DIRECTORY_NAME) if item.partition_id is None]
    marked = {item.table_id for item in found if item.is_marked}
    tables = [item for item in found if item.table_id not in marked]
    records = [record for item in tables if (record := read_record(item.path)) is not None]
    mark = read_mark(data_dir)
    copy, stored = _newest_copy(data_dir, mark, records) if use_copy else (None, None)
    restored = _restored(records, stored)
    known = {record.table_id for record in records} | set(stored.tables if stored is not None else ())
    dropped = stored.dropped.tables if stored is not None else frozenset()
    there = {item.table_id for item in found}
    in_copy = frozenset(stored.tables) if stored is not None else frozenset()
    files = FileSystem()
    return CatalogPlan(
        data_dir,
        copy,
        stored,
        tuple(restored),
        tuple(item for item in tables if item.table_id not in known and item.table_id not in dropped),
        in_copy & marked,
        len(in_copy - there),
        sum(len(staged_writer_ids(files, str(path))) for item in tables for path in bucket_directories(item.path)),
        mark,
    )


def _newest_copy(
    data_dir: Path, mark: CatalogMark | None, records: Sequence[TableRecord]
) -> tuple[Path | None, OfflineCatalog | None]:
    """The newest undamaged safety copy of this directory's catalog, with its contents; None if there is none."""
    ids = {record.catalog_id for record in records} | ({mark.catalog_id} if mark is not None else set())
    for path in list_copies(data_dir):
        try:
            stored = read_offline_catalog(path)
        except FlussError:
            continue
        if stored is not None and stored.counters.get(CATALOG_ID_COUNTER, 0) in {0, *ids}:
            return path, stored
    return None, None


def _restored(records: Sequence[TableRecord], stored: OfflineCatalog | None) -> list[TableRecord]:
    """The records that are newer than the copy. Of several tables with one name, the one created last."""
    by_name = {record.name: record for record in sorted(records, key=lambda record: record.table_id)}
    if stored is None:
        return list(by_name.values())
    change = stored.counters.get("change", 0)
    return [
        record
        for record in by_name.values()
        if record.table_id not in stored.dropped.tables
        and (record.table_id not in stored.tables or record.change > change)
    ]


def apply_catalog(plan: CatalogPlan, *, forget_staged: bool = False) -> list[Path]:
    """Put the new catalog in place; return the files of the old one under their new names."""
    if plan.staged_files and not forget_staged:
        raise FlussError(
            f"{plan.data_dir} has {plan.staged_files} staged files, and which of their commits were decided is lost "
            "with the catalog; check which commits their writers consider done, then repeat this with --forget-staged, "
            "which gives all of them up",
            ErrorCode.STORAGE_EXCEPTION,
        )
    if not plan.restored and not plan.databases and plan.stored is None:
        raise FlussError(
            f"nothing to restore in {plan.data_dir}: it has no safety copy and no tables; check the path",
            ErrorCode.STORAGE_EXCEPTION,
        )
    new = plan.data_dir / NEW_CATALOG_NAME
    for suffix in ("", "-wal", "-shm"):
        new.with_name(new.name + suffix).unlink(missing_ok=True)
    if plan.copy is not None:
        with closing(sqlite3.connect(plan.copy)) as source, closing(sqlite3.connect(new)) as target:
            source.backup(target)
    store = CatalogStore(new)
    try:
        _fill(store, plan, forget_staged=forget_staged)
        store.file.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        store.close()
    return _put_in_place(plan.data_dir, new)


def _fill(store: CatalogStore, plan: CatalogPlan, *, forget_staged: bool) -> None:
    file = store.file
    with file.transaction() as connection:
        for table_id in plan.dropped:
            connection.execute("DELETE FROM tables WHERE table_id = ?", (table_id,))
            store.drops.note(TABLE_KIND, table_id, file.counter("change"))
        # The newest record comes first, because it defines the database.
        for record in sorted(plan.restored, key=lambda record: -record.change):
            clash = connection.execute(
                "SELECT table_id FROM tables WHERE database_name = ? AND table_name = ? AND table_id != ?",
                (record.database_name, record.table_name, record.table_id),
            ).fetchone()
            if clash is not None:  # the table of the copy was dropped later, and its name used again
                connection.execute("DELETE FROM tables WHERE table_id = ?", clash)
            put_table(file, record)
        _put_databases(file, plan)
        # Offsets files that are unused according to the copy may have been registered since.
        connection.execute("DELETE FROM lake_prepared")
        known = plan.mark.counters if plan.mark is not None else {}
        for name, value in known.items():
            file.set_counter(name, max(file.counter(name), value))
        change = max([file.counter("change"), *(record.change for record in plan.restored)])
        file.set_counter("change", change + 1)
        file.set_counter("writer_id", file.counter("writer_id") + WRITER_IDS_SKIPPED)
        if plan.mark is not None:
            file.set_counter(CATALOG_ID_COUNTER, plan.mark.catalog_id)
        if forget_staged:
            connection.execute("DELETE FROM staged_work")
            file.set_counter(REVOKED_FLOOR_COUNTER, file.counter("writer_id"))
    store.create_first_database("fluss", 0)
    found = list_directories(plan.data_dir / DATA_DIRECTORY_NAME)
    store.reserve_ids_through(
        max((item.table_id for item in found), default=-1),
        max((item.partition_id for item in found if item.partition_id is not None), default=-1),
    )


def _put_databases(file: DatabaseFile, plan: CatalogPlan) -> None:
    """Add databases without tables, and update those altered after copy and records. Call within a transaction."""
    if plan.mark is None:
        return
    now_ms, marked = time.time_ns() // 1_000_000, plan.mark.counters["change"]
    seen = {} if plan.stored is None else dict.fromkeys(plan.stored.databases, plan.stored.counters.get("change", 0))
    for record in plan.restored:
        seen[record.database_name] = max(record.change, seen.get(record.database_name, 0))
    for name, descriptor in plan.mark.databases.items():
        row = (name, descriptor or NO_DESCRIPTOR, now_ms, now_ms, file.next_change())
        file.connection.execute("INSERT OR IGNORE INTO databases VALUES (?, ?, ?, ?, ?)", row)
        if descriptor is not None and marked >= seen.get(name, 0):
            file.connection.execute("UPDATE databases SET descriptor = ? WHERE name = ?", (descriptor, name))


def _put_in_place(data_dir: Path, new: Path) -> list[Path]:
    """Replace the catalog. The old files are renamed first, or SQLite would apply the old log to the new catalog."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    moved = []
    for suffix in ("", "-wal", "-shm"):
        path = data_dir / (CATALOG_FILE_NAME + suffix)
        if path.exists():
            moved.append(path.rename(data_dir / f"catalog.replaced-{moment}.sqlite{suffix}"))
    files = FileSystem()
    descriptor = files.open_read(str(new))
    try:
        files.fdatasync(descriptor)
    finally:
        files.close(descriptor)
    files.replace(str(new), str(data_dir / CATALOG_FILE_NAME))
    files.sync_directory(str(data_dir))
    store = CatalogStore(data_dir / CATALOG_FILE_NAME)
    try:
        TableCopies(data_dir, store).start()
    finally:
        store.close()
    return moved


def auto_increment_columns(data_dir: Path) -> dict[int, tuple[str, str]]:
    """Return table id -> (name, auto-increment column) of all tables in the catalog that have one."""
    store = CatalogStore(data_dir / CATALOG_FILE_NAME)
    try:
        found = {}
        for table_id, database, table, text in store.file.connection.execute(
            "SELECT table_id, database_name, table_name, schema FROM tables JOIN schemas USING (table_id, schema_id)"
        ):
            column = schema_from_json(load_json(text)).auto_increment_column
            if column is not None:
                found[table_id] = (f"{database}.{table}", column)
        return found
    finally:
        store.close()


def set_auto_increment(data_dir: Path, highest: Mapping[int, int]) -> None:
    """Make tables continue above these numbers, and discard the blocks that their buckets had reserved."""
    store = CatalogStore(data_dir / CATALOG_FILE_NAME)
    try:
        with store.file.transaction() as connection:
            for table_id, number in highest.items():
                name = row_number_counter(table_id)
                connection.execute("DELETE FROM row_numbers WHERE table_id = ?", (table_id,))
                store.file.set_counter(name, max(store.file.counter(name), number))
    finally:
        store.close()
