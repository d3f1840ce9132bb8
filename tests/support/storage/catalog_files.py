"""Small descriptors for catalog tests, and the check that a catalog file is consistent."""

from __future__ import annotations

from pathlib import Path

from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import TablePath
from fluss.model.schema import Column, Schema
from fluss.model.types import IntType, StringType
from fluss.server.catalog import Catalog, CatalogStore


def plain_table(buckets: int = 2, *, partitioned: bool = False, extra_columns: int = 0) -> TableDescriptor:
    """A descriptor as the coordinator stores it."""
    columns = [Column("a", IntType()), Column("p", StringType())]
    columns += [Column(f"x{index}", IntType()) for index in range(extra_columns)]
    return TableDescriptor(
        Schema(tuple(columns)).numbered(),
        partition_keys=("p",) if partitioned else (),
        bucket_count=buckets,
        properties={"table.replication.factor": "1"},
    )


def path_of(name: str, database: str = "fluss") -> TablePath:
    """A table path in the default database."""
    return TablePath(database, name)


def check_consistent(file: Path) -> Catalog:
    """Assert what must hold after any crash; returns a fresh view."""
    store = CatalogStore(file)
    connection = store.file.connection
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    catalog = Catalog(store)
    for entry in catalog.tables():
        assert catalog.database(entry.path.database_name) is not None
        assert set(entry.schemas) == set(range(1, entry.schema_id + 1))
        assert entry.schemas[entry.schema_id] == entry.schema
        assert entry.table_id < store.file.counter("table_id")
        assert catalog.table(entry.path) is entry
        for partition in entry.partitions.values():
            assert partition.partition_id < store.file.counter("partition_id")
    return catalog
