"""A process's in-memory view of the metadata, updated incrementally.

Theory. `Catalog` holds everything in dictionaries. `refresh()` asks SQLite whether any process has committed
(microseconds) and, if so, reads in one snapshot the rows with a change number above the last one seen: tombstones
remove entries, changed rows replace them. A handler that needs metadata calls `refresh()` first; then it sees every
change that any process had acknowledged before.

Invariants after a refresh: every table is in both maps; every partition of a table is in `_partitions`; nothing of a
dropped table is left. All calls come from one thread, the event loop's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fluss.model.descriptor import database_descriptor_from_json, load_json, table_descriptor_from_json
from fluss.model.names import DIRECTORY_NAME_LIMIT_CHARACTERS
from fluss.model.paths import TableBucket, TablePath
from fluss.model.schema import Schema, schema_from_json
from fluss.server.catalog.closing_records import CLOSING_SECTION
from fluss.server.catalog.metadata_entries import DatabaseEntry, PartitionEntry, TableEntry
from fluss.server.catalog.records import ACL_SECTION, CONFIG_SECTION, TAG_SECTION, Acl
from fluss.server.catalog.store import CatalogStore
from fluss.server.catalog.table_rows import directory_of

# File systems allow 255 bytes per name, so names are cut; the ids after them keep directories distinct.


class Catalog:
    """Databases, tables and partitions by name and by id, plus ACLs, run-time options and server tags.

    `closing_partitions` are the ids of partitions that take no more rows; some may already be dropped.
    """

    def __init__(self, store: CatalogStore) -> None:
        self.store = store
        self._seen_data_version: tuple[int, int] | None = None
        self._seen_change = -1
        self._clear()
        self.refresh()

    def _clear(self) -> None:
        self._databases: dict[str, DatabaseEntry] = {}
        self._tables_by_id: dict[int, TableEntry] = {}
        self._tables_by_path: dict[TablePath, TableEntry] = {}
        self._partitions: dict[int, tuple[int, PartitionEntry]] = {}
        self._sections: dict[str, int] = {}
        self.acls: tuple[Acl, ...] = ()
        self.cluster_config: Mapping[str, str] = {}
        self.server_tags: Mapping[int, int] = {}
        self.closing_partitions: frozenset[int] = frozenset()
        self._seen_change = -1

    @property
    def change(self) -> int:
        """The number of the last change seen. It grows with every change of the metadata."""
        return self._seen_change

    def refresh(self) -> bool:
        """Load the changes that any process has made; True if there were any."""
        file = self.store.file
        data_version = file.data_version()
        if data_version == self._seen_data_version:
            return False
        with file.snapshot() as connection:
            counters: dict[str, int] = dict(connection.execute("SELECT name, value FROM counters").fetchall())
            change = counters.get("change", 0)
            if change != self._seen_change:
                if self._seen_change < counters.get("tombstone_floor", 0):
                    self._clear()
                self._load(connection, self._seen_change)
                self._load_sections(counters)
        changed = change != self._seen_change
        self._seen_change = change
        self._seen_data_version = data_version
        return changed

    def _load(self, connection: sqlite3.Connection, after: int) -> None:
        # Removals first: a dropped and recreated name must end up with the new entry.
        if after >= 0:
            self._remove(connection.execute("SELECT kind, id FROM tombstones WHERE change > ?", (after,)))
        for name, descriptor, created_time, modified_time in connection.execute(
            "SELECT name, descriptor, created_time, modified_time FROM databases WHERE change > ?", (after,)
        ):
            entry = DatabaseEntry(name, database_descriptor_from_json(descriptor), created_time, modified_time)
            self._databases[name] = entry
        schemas: dict[int, dict[int, Schema]] = {}
        for table_id, schema_id, document in connection.execute(
            "SELECT schemas.* FROM schemas JOIN tables USING (table_id) WHERE change > ? ORDER BY table_id, schema_id",
            (after,),
        ):
            schemas.setdefault(table_id, {})[schema_id] = schema_from_json(load_json(document))
        for row in connection.execute("SELECT * FROM tables WHERE change > ? ORDER BY table_id", (after,)):
            self._put_table(row, schemas[row[0]])
        for partition_id, table_id, name in connection.execute(
            "SELECT partition_id, table_id, name FROM partitions WHERE change > ? ORDER BY partition_id", (after,)
        ):
            partition = PartitionEntry(partition_id, name)
            self._partitions[partition_id] = (table_id, partition)
            self._tables_by_id[table_id].partitions[name] = partition

    def _put_table(self, row: tuple[int, str, str, str, int, int, int, int], schemas: dict[int, Schema]) -> None:
        table_id, database_name, table_name, document, schema_id, created_time, modified_time, _ = row
        old = self._tables_by_id.get(table_id)
        entry = TableEntry(
            path=TablePath(database_name, table_name),
            table_id=table_id,
            schema_id=schema_id,
            schemas=schemas,
            descriptor=table_descriptor_from_json(document),
            created_time=created_time,
            modified_time=modified_time,
            partitions={} if old is None else old.partitions,
        )
        assert schema_id in schemas, f"table {entry.path} has no schema {schema_id}"
        self._tables_by_id[table_id] = entry
        self._tables_by_path[entry.path] = entry

    def _remove(self, tombstones: Iterable[tuple[str, str]]) -> None:
        for kind, identifier in tombstones:
            if kind == "database":
                self._databases.pop(identifier, None)
            elif kind == "table":
                self._remove_table(int(identifier))
            else:
                self._remove_partition(int(identifier))

    def _remove_table(self, table_id: int) -> None:
        entry = self._tables_by_id.pop(table_id, None)
        if entry is None:
            return  # created and dropped since the last refresh
        for partition in entry.partitions.values():
            del self._partitions[partition.partition_id]
        if self._tables_by_path.get(entry.path) is entry:
            del self._tables_by_path[entry.path]

    def _remove_partition(self, partition_id: int) -> None:
        found = self._partitions.pop(partition_id, None)
        if found is not None:
            table_id, partition = found
            del self._tables_by_id[table_id].partitions[partition.name]

    def _load_sections(self, counters: Mapping[str, int]) -> None:
        sections = (ACL_SECTION, CONFIG_SECTION, TAG_SECTION, CLOSING_SECTION)
        changed = {name for name in sections if self._is_new(name, counters)}
        if ACL_SECTION in changed:
            self.acls = tuple(self.store.acls.all())
        if CONFIG_SECTION in changed:
            self.cluster_config = self.store.settings.config()
        if TAG_SECTION in changed:
            self.server_tags = self.store.settings.tags()
        if CLOSING_SECTION in changed:
            self.closing_partitions = frozenset(self.store.closing.all())

    def _is_new(self, section: str, counters: Mapping[str, int]) -> bool:
        number = counters.get(section, 0)
        was = self._sections.get(section, 0)
        self._sections[section] = number
        return number != was

    # Lookups

    @property
    def databases(self) -> Mapping[str, DatabaseEntry]:
        """All databases by name."""
        return self._databases

    def database(self, name: str) -> DatabaseEntry | None:
        return self._databases.get(name)

    def tables(self) -> Iterable[TableEntry]:
        """All tables, in arbitrary order."""
        return self._tables_by_id.values()

    def tables_of(self, database_name: str) -> list[TableEntry]:
        """The tables of one database, sorted by name."""
        entries = [entry for path, entry in self._tables_by_path.items() if path.database_name == database_name]
        return sorted(entries, key=lambda entry: entry.path)

    def table(self, path: TablePath) -> TableEntry | None:
        return self._tables_by_path.get(path)

    def table_by_id(self, table_id: int) -> TableEntry | None:
        return self._tables_by_id.get(table_id)

    def partition(self, table_id: int, partition_id: int) -> PartitionEntry | None:
        """Return a partition by id, if it belongs to that table."""
        found = self._partitions.get(partition_id)
        return found[1] if found is not None and found[0] == table_id else None

    def partition_by_id(self, partition_id: int) -> tuple[TableEntry, PartitionEntry] | None:
        """Return the partition with this id, and its table; None if it does not exist."""
        found = self._partitions.get(partition_id)
        return None if found is None else (self._tables_by_id[found[0]], found[1])

    def has_bucket(self, bucket: TableBucket) -> bool:
        """True if the bucket exists now."""
        entry = self._tables_by_id.get(bucket.table_id)
        if entry is None or not 0 <= bucket.bucket_id < entry.bucket_count:
            return False
        if bucket.partition_id is None:
            return not entry.is_partitioned
        return self.partition(bucket.table_id, bucket.partition_id) is not None

    def buckets(self) -> Iterator[TableBucket]:
        """Iterate over the buckets of all tables and partitions."""
        for entry in self._tables_by_id.values():
            yield from self.buckets_of(entry)

    def buckets_of(self, entry: TableEntry) -> Iterator[TableBucket]:
        """Iterate over the buckets of a table, in all its partitions."""
        owners: Iterable[int | None] = [None]
        if entry.is_partitioned:
            owners = [partition.partition_id for partition in entry.partitions.values()]
        for partition_id in owners:
            for bucket_id in range(entry.bucket_count):
                yield TableBucket(entry.table_id, partition_id, bucket_id)

    def directory(self, bucket: TableBucket) -> Path:
        """Return the directory of a bucket, relative to the data directory; KeyError for an unknown bucket."""
        entry = self._tables_by_id[bucket.table_id]
        directory = directory_of(entry.path.database_name, entry.path.table_name, entry.table_id)
        if bucket.partition_id is not None:
            partition = self._partitions[bucket.partition_id][1]
            directory /= f"{partition.name[:DIRECTORY_NAME_LIMIT_CHARACTERS]}-p{partition.partition_id}"
        return directory / f"log-{bucket.bucket_id}"
