"""Converts the rows of a table in the catalog file to the record in its directory (`table.json`), and back."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from fluss.server.catalog.database_file import DatabaseFile
from fluss.server.catalog.mark import CATALOG_ID_COUNTER
from fluss.server.storage.directory.table_directories import DATA_DIRECTORY_NAME
from fluss.server.storage.directory.table_record import TableRecord


def directory_of(database_name: str, table_name: str, table_id: int) -> Path:
    """Return the directory of a table, relative to the data directory."""
    return Path(DATA_DIRECTORY_NAME, database_name, f"{table_name}-{table_id}")


def table_record(connection: sqlite3.Connection, table_id: int) -> TableRecord | None:
    """Return the record of a table from the catalog, or None if the table is not in it."""
    row = connection.execute(
        "SELECT database_name, databases.descriptor, table_name, tables.descriptor, schema_id, tables.created_time, "
        "tables.modified_time FROM tables JOIN databases ON databases.name = database_name WHERE table_id = ?",
        (table_id,),
    ).fetchone()
    if row is None:
        return None
    database_name, database_descriptor, table_name, descriptor, schema_id, created_time, modified_time = row
    counters = dict(connection.execute("SELECT name, value FROM counters WHERE name IN ('change', 'catalog_id')"))
    return TableRecord(
        catalog_id=counters.get(CATALOG_ID_COUNTER, 0),
        change=counters.get("change", 0),
        database_name=database_name,
        database_descriptor=database_descriptor,
        table_name=table_name,
        table_id=table_id,
        descriptor=descriptor,
        schema_id=schema_id,
        schemas=dict(connection.execute("SELECT schema_id, schema FROM schemas WHERE table_id = ?", (table_id,))),
        created_time=created_time,
        modified_time=modified_time,
        partitions=dict(
            connection.execute("SELECT partition_id, name FROM partitions WHERE table_id = ?", (table_id,))
        ),
    )


def put_table(file: DatabaseFile, record: TableRecord) -> None:
    """Create or update a table from its record, with the ids of the record. Call within a transaction."""
    connection, change = file.connection, file.next_change()
    database = (record.database_name, record.database_descriptor, record.created_time, record.created_time, change)
    connection.execute("INSERT OR IGNORE INTO databases VALUES (?, ?, ?, ?, ?)", database)
    row = (record.table_id, record.database_name, record.table_name, record.descriptor, record.schema_id)
    connection.execute(
        "INSERT INTO tables VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (table_id) DO UPDATE SET "
        "descriptor = excluded.descriptor, schema_id = excluded.schema_id, modified_time = excluded.modified_time, "
        "change = excluded.change",
        (*row, record.created_time, record.modified_time, change),
    )
    connection.executemany(
        "INSERT OR REPLACE INTO schemas VALUES (?, ?, ?)",
        [(record.table_id, number, text) for number, text in record.schemas.items()],
    )
    # A name that was dropped and created again since then keeps the id that the catalog has.
    connection.executemany(
        "INSERT OR IGNORE INTO partitions VALUES (?, ?, ?, ?)",
        [(number, record.table_id, name, change) for number, name in record.partitions.items()],
    )
    for counter, used in (("table_id", record.table_id), ("partition_id", max(record.partitions, default=-1))):
        if file.counter(counter) <= used:
            file.set_counter(counter, used + 1)
