"""Changes of the metadata, each as one transaction.

Theory: all writes to the catalog file go through `CatalogStore`. Each method is one DDL step: it checks within the
transaction that the step is still possible, writes, and returns when the change is on disk; if it raises, nothing has
changed. The coordinator validates names and descriptors beforehand. Callers: the coordinator; tablets only call
`allocate_writer_ids`, reserve row numbers, register snapshots of their buckets, and record the ends of closing ones.
See `database_file` for threads, processes and change numbers.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path

from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import (
    DatabaseDescriptor,
    TableDescriptor,
    database_descriptor_to_json,
    dump_json,
    table_descriptor_to_json,
)
from fluss.model.paths import PhysicalTablePath, TablePath
from fluss.model.schema import Schema, schema_to_json
from fluss.server.catalog.closing_records import ClosingRecords
from fluss.server.catalog.database_file import DatabaseFile
from fluss.server.catalog.drop_records import PARTITION_KIND, TABLE_KIND, DropRecords
from fluss.server.catalog.kv_snapshot_records import KvSnapshotRecords
from fluss.server.catalog.lake_records import LakeRecords
from fluss.server.catalog.mark import CATALOG_ID_COUNTER
from fluss.server.catalog.records import AclRecords, ExpiringRecords, SettingRecords
from fluss.server.catalog.row_number_records import RowNumberRecords, row_number_counter
from fluss.server.catalog.staged_records import StagedRecords
from fluss.server.storage.directory.disk_reserve import make_room_for_dropping

FIRST_SCHEMA_ID = 1
# Record batches carry the schema id in 16 bits.
LAST_SCHEMA_ID = 32767
CATALOG_ID_LIMIT = 2**53


class CatalogStore:
    """The catalog file of a data directory, open for changes."""

    def __init__(self, path: Path) -> None:
        self.file = DatabaseFile(path)
        self.acls = AclRecords(self.file)
        self.settings = SettingRecords(self.file)
        self.producer_offsets = ExpiringRecords(self.file, "producer_offsets", "producer_id", "offsets")
        self.kv_snapshot_leases = ExpiringRecords(self.file, "kv_snapshot_leases", "lease_id", "snapshots")
        self.staged = StagedRecords(self.file)
        self.kv_snapshots = KvSnapshotRecords(self.file, self.kv_snapshot_leases)
        self.lake = LakeRecords(self.file)
        self.closing = ClosingRecords(self.file)
        self.row_numbers = RowNumberRecords(self.file)
        self.drops = DropRecords(self.file)
        self.on_table_change: Callable[[int], None] = _nothing
        """Called with the id of a table whose change or drop has just become durable."""
        self.on_database_change: Callable[[Iterable[int]], None] = _nothing_of_many
        """Called with the ids of all tables of a database whose change or drop has just become durable."""

    def close(self) -> None:
        """Close the file; the store must not be used afterwards."""
        self.file.close()

    # Databases

    def create_database(self, name: str, descriptor: DatabaseDescriptor, now_ms: int) -> None:
        with self.file.transaction() as connection:
            if _database_exists(connection, name):
                raise database_exists(name)
            row = (name, _text(database_descriptor_to_json(descriptor)), now_ms, now_ms, self.file.next_change())
            connection.execute("INSERT INTO databases VALUES (?, ?, ?, ?, ?)", row)

    def create_first_database(self, name: str, now_ms: int) -> None:
        """Create the default database of an empty catalog; do nothing if there is any database."""
        with self.file.transaction() as connection:
            if connection.execute("SELECT 1 FROM databases LIMIT 1").fetchone() is None:
                row = (name, _text(database_descriptor_to_json(DatabaseDescriptor())), now_ms, now_ms)
                connection.execute("INSERT INTO databases VALUES (?, ?, ?, ?, ?)", (*row, self.file.next_change()))

    def alter_database(self, name: str, descriptor: DatabaseDescriptor, now_ms: int) -> None:
        with self.file.transaction() as connection:
            row = (_text(database_descriptor_to_json(descriptor)), now_ms, self.file.next_change(), name)
            statement = "UPDATE databases SET descriptor = ?, modified_time = ?, change = ? WHERE name = ?"
            if connection.execute(statement, row).rowcount == 0:
                raise database_missing(name)
            rows = connection.execute("SELECT table_id FROM tables WHERE database_name = ?", (name,)).fetchall()
        self.on_database_change([table_id for (table_id,) in rows])

    def drop_tables_of(self, name: str, limit: int) -> bool:
        """Drop up to `limit` tables of a database, in one transaction; True if there are more."""
        make_room_for_dropping(self.file.path.parent)
        with self.file.transaction() as connection:
            rows = connection.execute(
                "SELECT table_id, table_name FROM tables WHERE database_name = ? LIMIT ?", (name, limit + 1)
            ).fetchall()
            change = self.file.next_change()
            for table_id, table_name in rows[:limit]:
                self._delete_table(connection, table_id, change)
                self.acls.remove_for_table(TablePath(name, table_name))
        self.on_database_change([table_id for table_id, _ in rows[:limit]])
        return len(rows) > limit

    def drop_database(self, name: str, *, cascade: bool) -> None:
        make_room_for_dropping(self.file.path.parent)
        with self.file.transaction() as connection:
            if not _database_exists(connection, name):
                raise database_missing(name)
            rows = connection.execute("SELECT table_id FROM tables WHERE database_name = ?", (name,)).fetchall()
            if rows and not cascade:
                raise FlussError(
                    f"database {name!r} is not empty: it has {len(rows)} tables; drop them first, or drop with cascade",
                    ErrorCode.DATABASE_NOT_EMPTY,
                )
            change = self.file.next_change()
            for (table_id,) in rows:
                self._delete_table(connection, table_id, change)
            connection.execute("DELETE FROM databases WHERE name = ?", (name,))
            self.acls.remove_for_database(name)
            self.file.add_tombstone(change, "database", name)
        self.on_database_change([table_id for (table_id,) in rows])

    # Tables

    def create_table(self, path: TablePath, descriptor: TableDescriptor, now_ms: int) -> int:
        """Store a new table with schema id 1 and return its id."""
        assert descriptor.bucket_count is not None, "defaults must be filled in before a table is stored"
        with self.file.transaction() as connection:
            if not _database_exists(connection, path.database_name):
                raise database_missing(path.database_name)
            if _table_id(connection, path) is not None:
                raise table_exists(path)
            table_id = self.file.add_to_counter("table_id", 1)
            document = _text(table_descriptor_to_json(descriptor))
            row = (table_id, path.database_name, path.table_name, document, FIRST_SCHEMA_ID, now_ms, now_ms)
            connection.execute("INSERT INTO tables VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, self.file.next_change()))
            _insert_schema(connection, table_id, FIRST_SCHEMA_ID, descriptor.schema)
        self.on_table_change(table_id)
        return table_id

    def alter_table(self, path: TablePath, table_id: int, descriptor: TableDescriptor, now_ms: int) -> None:
        """Store changed properties or custom properties; the schema must be unchanged."""
        with self.file.transaction() as connection:
            row = (_text(table_descriptor_to_json(descriptor)), now_ms, self.file.next_change(), table_id)
            statement = "UPDATE tables SET descriptor = ?, modified_time = ?, change = ? WHERE table_id = ?"
            if connection.execute(statement, row).rowcount == 0:
                raise table_missing(path)
        self.on_table_change(table_id)

    def add_schema(self, path: TablePath, table_id: int, descriptor: TableDescriptor) -> int:
        """Store the next schema version of a table and return its id. The modified time does not change."""
        with self.file.transaction() as connection:
            row = connection.execute("SELECT schema_id FROM tables WHERE table_id = ?", (table_id,)).fetchone()
            if row is None:
                raise table_missing(path)
            schema_id = int(row[0]) + 1
            if schema_id > LAST_SCHEMA_ID:
                raise FlussError(
                    f"table {path} has {LAST_SCHEMA_ID} schema versions, which is the limit; copy it into a new table",
                    ErrorCode.INVALID_ALTER_TABLE_EXCEPTION,
                )
            document = _text(table_descriptor_to_json(descriptor))
            connection.execute(
                "UPDATE tables SET descriptor = ?, schema_id = ?, change = ? WHERE table_id = ?",
                (document, schema_id, self.file.next_change(), table_id),
            )
            _insert_schema(connection, table_id, schema_id, descriptor.schema)
        self.on_table_change(table_id)
        return schema_id

    def drop_table(self, path: TablePath) -> None:
        make_room_for_dropping(self.file.path.parent)
        with self.file.transaction() as connection:
            table_id = _table_id(connection, path)
            if table_id is None:
                raise table_missing(path)
            self._delete_table(connection, table_id, self.file.next_change())
            self.acls.remove_for_table(path)
        self.on_table_change(table_id)

    def _delete_table(self, connection: sqlite3.Connection, table_id: int, change: int) -> None:
        # The schemas and partitions of the table are deleted too (ON DELETE CASCADE).
        connection.execute("DELETE FROM tables WHERE table_id = ?", (table_id,))
        connection.execute("DELETE FROM counters WHERE name = ?", (row_number_counter(table_id),))
        self.file.add_tombstone(change, TABLE_KIND, str(table_id))
        self.drops.note(TABLE_KIND, table_id, change)

    # Partitions

    def create_partitions(self, path: TablePath, table_id: int, names: Iterable[str]) -> list[int]:
        """Add all partitions, or none, and return their ids in order. Code 42 if one exists."""
        with self.file.transaction() as connection:
            if connection.execute("SELECT 1 FROM tables WHERE table_id = ?", (table_id,)).fetchone() is None:
                raise table_missing(path)
            change = self.file.next_change()
            ids = [self._insert_partition(connection, path, table_id, name, change) for name in names]
        self.on_table_change(table_id)
        return ids

    def _insert_partition(
        self, connection: sqlite3.Connection, path: TablePath, table_id: int, name: str, change: int
    ) -> int:
        found = connection.execute("SELECT 1 FROM partitions WHERE table_id = ? AND name = ?", (table_id, name))
        if found.fetchone() is not None:
            raise partition_exists(path, name)
        partition_id = self.file.add_to_counter("partition_id", 1)
        connection.execute("INSERT INTO partitions VALUES (?, ?, ?, ?)", (partition_id, table_id, name, change))
        return partition_id

    def drop_partitions(self, path: TablePath, table_id: int, names: Iterable[str]) -> None:
        """Remove all partitions, or none. Code 36 if one does not exist."""
        make_room_for_dropping(self.file.path.parent)
        with self.file.transaction() as connection:
            change = self.file.next_change()
            for name in names:
                found = connection.execute(
                    "SELECT partition_id FROM partitions WHERE table_id = ? AND name = ?", (table_id, name)
                ).fetchone()
                if found is None:
                    raise partition_missing(path, name)
                connection.execute("DELETE FROM partitions WHERE partition_id = ?", found)
                self.file.add_tombstone(change, PARTITION_KIND, str(found[0]))
                self.drops.note(PARTITION_KIND, found[0], change)
        self.on_table_change(table_id)

    # Ids and epochs

    @property
    def catalog_id(self) -> int:
        """A random number that identifies this catalog; 0 if none has been assigned yet."""
        return self.file.counter(CATALOG_ID_COUNTER)

    def ensure_catalog_id(self) -> None:
        """Assign an id to a catalog that has none."""
        if self.catalog_id == 0:
            with self.file.transaction():
                self.file.set_counter(CATALOG_ID_COUNTER, 1 + secrets.randbelow(CATALOG_ID_LIMIT))

    def reserve_ids_through(self, table_id: int, partition_id: int) -> None:
        """Assign only higher ids from now on, because ids up to these may have been used."""
        with self.file.transaction():
            for name, used in (("table_id", table_id), ("partition_id", partition_id)):
                if self.file.counter(name) <= used:
                    self.file.set_counter(name, used + 1)

    def allocate_writer_ids(self, count: int) -> int:
        """Reserve `count` writer ids for one tablet and return the first. Ids are never reused."""
        assert count > 0
        with self.file.transaction():
            return self.file.add_to_counter("writer_id", count)

    def next_coordinator_epoch(self) -> int:
        """Return a number that grows with every start of the coordinator."""
        with self.file.transaction():
            return self.file.add_to_counter("coordinator_epoch", 1)


def _nothing(table_id: int) -> None:
    """The default callback: do nothing."""


def _nothing_of_many(table_ids: Iterable[int]) -> None:
    """The default callback for several tables: do nothing."""


def _text(node: object) -> str:
    return dump_json(node).decode()


def _database_exists(connection: sqlite3.Connection, name: str) -> bool:
    return connection.execute("SELECT 1 FROM databases WHERE name = ?", (name,)).fetchone() is not None


def _table_id(connection: sqlite3.Connection, path: TablePath) -> int | None:
    row = connection.execute(
        "SELECT table_id FROM tables WHERE database_name = ? AND table_name = ?",
        (path.database_name, path.table_name),
    ).fetchone()
    return None if row is None else int(row[0])


def _insert_schema(connection: sqlite3.Connection, table_id: int, schema_id: int, schema: Schema) -> None:
    connection.execute("INSERT INTO schemas VALUES (?, ?, ?)", (table_id, schema_id, _text(schema_to_json(schema))))


def database_missing(name: str) -> FlussError:
    return FlussError(
        f"database {name!r} does not exist; list_databases() lists those that do", ErrorCode.DATABASE_NOT_EXIST
    )


def database_exists(name: str) -> FlussError:
    return FlussError(
        f"database {name!r} already exists; pass ignore_if_exists to accept that", ErrorCode.DATABASE_ALREADY_EXIST
    )


def table_missing(path: TablePath) -> FlussError:
    return FlussError(
        f"table '{path}' does not exist; list_tables({path.database_name!r}) lists those that do",
        ErrorCode.TABLE_NOT_EXIST,
    )


def table_exists(path: TablePath) -> FlussError:
    return FlussError(
        f"table '{path}' already exists; pass ignore_if_exists to accept that, or drop it first",
        ErrorCode.TABLE_ALREADY_EXIST,
    )


def partition_missing(path: TablePath, name: str) -> FlussError:
    # Tests of Apache Fluss's clients compare this message.
    return FlussError(
        f"Table partition '{PhysicalTablePath(path, name)}' does not exist.", ErrorCode.PARTITION_NOT_EXISTS
    )


def partition_exists(path: TablePath, name: str) -> FlussError:
    return FlussError(
        f"partition '{PhysicalTablePath(path, name)}' already exists; pass ignore_if_exists to accept that",
        ErrorCode.PARTITION_ALREADY_EXISTS,
    )
