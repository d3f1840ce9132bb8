"""Checks before a start that the catalog and the directories of the tables belong together.

No other process has the data directory open: the supervisor calls this before it forks, an embedding program before the
server's thread starts. Files that a catalog does not know are never deleted. The decisions:

- There are tables, but the catalog is missing, empty, damaged or another server's: the server does not start.
- The catalog is behind `catalog.mark` or behind the record of a table (`table.json`), so it is old: the server does not
  start.
- The catalog is behind in one of these ways because the whole directory is a copy that was made while the server ran
  (`mark` explains how that is detected), so the catalog may have been copied a moment before the rest: its tables are
  updated from their records.
- Other directories that the catalog neither has nor knows to be dropped are moved to `DIR/orphans`, with a warning, and
  their ids are never assigned again.

A power loss alone causes none of this: mark and records are written after the catalog's own commit is on disk.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from fluss.errors import ErrorCode, FlussError
from fluss.server.catalog import CatalogStore
from fluss.server.catalog.database_file import CATALOG_FILE_NAME, FORMAT_VERSION, LATER_TABLE_NAMES
from fluss.server.catalog.mark import CATALOG_ID_COUNTER, CatalogMark, read_mark
from fluss.server.catalog.offline_catalog import OfflineCatalog, read_offline_catalog
from fluss.server.catalog.safety_copies import copy_before_upgrade
from fluss.server.catalog.table_rows import put_table
from fluss.server.storage.directory.table_directories import (
    DATA_DIRECTORY_NAME,
    ORPHANS_DIRECTORY_NAME,
    FoundDirectory,
    list_directories,
    move_to_orphans,
)
from fluss.server.storage.directory.table_record import TableRecord, read_record
from fluss.server.storage.files import FileSystem

logger = logging.getLogger(__name__)

NAMED_LIMIT = 5


def check_tables(data_dir: Path) -> None:
    """Check that the catalog belongs to the directories of tables; code 26 if it does not."""
    found = [item for item in list_directories(data_dir / DATA_DIRECTORY_NAME) if not item.is_marked]
    mark = read_mark(data_dir)
    if not found and mark is None:
        return
    path = data_dir / CATALOG_FILE_NAME
    try:
        catalog = read_offline_catalog(path)
    except FlussError as error:
        raise _refusal(data_dir, error.message) from None
    if catalog is None:
        what = "is empty" if path.exists() else "is missing"
        raise _refusal(data_dir, f"catalog {path} {what}, but there are {_count(found)}{_names(data_dir, found)}")
    records = {item.table_id: read_record(item.path) for item in found if item.partition_id is None}
    known_records = {table_id: record for table_id, record in records.items() if record is not None}
    _check_identity(data_dir, catalog, mark, known_records)
    ahead = newer_tables(catalog, known_records)
    if mark is None or mark.is_original:
        _check_age(data_dir, catalog, mark, ahead)
    _check_nameless(data_dir, catalog, found, known_records)
    newer_here = [record for record in ahead if record.table_id in catalog.tables]
    unknown = unknown_directories(found, catalog, {number for record in newer_here for number in record.partitions})
    if newer_here or unknown:
        _update_and_put_aside(data_dir, newer_here, found, unknown)


def newer_tables(catalog: OfflineCatalog, records: Mapping[int, TableRecord]) -> list[TableRecord]:
    """Return the records of tables that changed after the catalog's last change, or that it cannot have created."""
    change, next_id = catalog.counters.get("change", 0), catalog.counters.get("table_id", 0)
    return [record for record in records.values() if record.change > change or record.table_id >= next_id]


def unknown_directories(
    found: Iterable[FoundDirectory], catalog: OfflineCatalog, coming: Iterable[int] = ()
) -> list[FoundDirectory]:
    """Return the directories that the catalog neither has nor knows to be dropped.

    Partitions of an unknown table are not listed separately.

    `coming` are ids of partitions that the catalog is about to get.
    """
    unknown: list[FoundDirectory] = []
    partitions = catalog.dropped.partitions.union(coming)
    for directory in found:
        table_id, partition_id = directory.table_id, directory.partition_id
        if partition_id is None:
            is_known = table_id in catalog.tables or table_id in catalog.dropped.tables
        else:
            is_known = (
                table_id not in catalog.tables
                or catalog.has_partition(table_id, partition_id)
                or partition_id in partitions
            )
        if not is_known:
            unknown.append(directory)
    return unknown


def _check_identity(
    data_dir: Path, catalog: OfflineCatalog, mark: CatalogMark | None, records: Mapping[int, TableRecord]
) -> None:
    """Refuse another server's catalog, whatever its counters are."""
    own = catalog.counters.get(CATALOG_ID_COUNTER, 0)
    others = {record.catalog_id for record in records.values()} | ({mark.catalog_id} if mark is not None else set())
    # A catalog without an id is of an earlier version, or from before this directory got its id: `_check_age` decides.
    if own and others - {own, 0}:
        text = f"catalog {data_dir / CATALOG_FILE_NAME} belongs to other tables than those in this directory"
        raise _refusal(data_dir, text)


def _check_age(data_dir: Path, catalog: OfflineCatalog, mark: CatalogMark | None, ahead: list[TableRecord]) -> None:
    counters = catalog.counters
    behind = mark.ahead_of(counters) if mark is not None else []
    reasons = [f"its counter {name!r} is {counters.get(name, 0)}" for name in behind[:1]]
    if mark is not None and behind:
        reasons[0] += f", but it was {mark.counters[behind[0]]} before"
    if ahead:
        newest = max(ahead, key=lambda record: record.change)
        reasons.append(
            f"its last change is {counters.get('change', 0)}, but table {newest.name} was changed at {newest.change}"
            + (f", and {len(ahead) - 1} more tables are newer" if len(ahead) > 1 else "")
        )
    if reasons:
        path = data_dir / CATALOG_FILE_NAME
        raise _refusal(data_dir, f"catalog {path} is older than the tables in this directory: {'; '.join(reasons)}")


def _check_nameless(
    data_dir: Path, catalog: OfflineCatalog, found: list[FoundDirectory], records: Mapping[int, TableRecord]
) -> None:
    """Refuse a catalog that has none of the tables without records, and cannot have created one of them.

    Tables of earlier versions have no records.
    """
    tables = [item for item in found if item.partition_id is None]
    strange = [
        item for item in tables if item.table_id not in records and item.table_id >= catalog.counters.get("table_id", 0)
    ]
    if strange and not any(item.table_id in catalog.tables for item in tables):
        text = f"catalog {data_dir / CATALOG_FILE_NAME} has none of the {_count(found)} in this directory"
        raise _refusal(data_dir, text + _names(data_dir, found))


def _update_and_put_aside(
    data_dir: Path, newer_here: list[TableRecord], found: list[FoundDirectory], unknown: list[FoundDirectory]
) -> None:
    copy_before_upgrade(data_dir, LATER_TABLE_NAMES, FORMAT_VERSION)
    store = CatalogStore(data_dir / CATALOG_FILE_NAME)
    try:
        with store.file.transaction():
            for record in newer_here:
                put_table(store.file, record)
        # Before the directories are moved: a new table with such an id would share the remote objects of the old one.
        store.reserve_ids_through(
            max(directory.table_id for directory in found),
            max((directory.partition_id for directory in found if directory.partition_id is not None), default=-1),
        )
    finally:
        store.close()
    if newer_here:
        logger.warning(
            "this is a copy of a data directory that was made while tables changed: %d tables were updated from the "
            "records in their directories, such as %s",
            len(newer_here),
            newer_here[0].name,
        )
    if not unknown:
        return
    moved = [move_to_orphans(data_dir, directory.path, FileSystem()) for directory in unknown]
    logger.warning(
        "moved %s, which the catalog neither has nor knows to be dropped, to %s%s. Nothing was deleted; "
        "'fluss repair orphans --data %s' lists them",
        _count(unknown),
        data_dir / ORPHANS_DIRECTORY_NAME,
        _abbreviated([str(path.relative_to(data_dir / ORPHANS_DIRECTORY_NAME)) for path in moved]),
        data_dir,
    )


def _count(found: list[FoundDirectory]) -> str:
    tables = sum(item.partition_id is None for item in found)
    return f"directories of {tables} tables and {len(found) - tables} partitions"


def _names(data_dir: Path, found: list[FoundDirectory]) -> str:
    names = [item.path for item in found if item.partition_id is None]
    return _abbreviated([str(path.relative_to(data_dir / DATA_DIRECTORY_NAME)) for path in names])


def _abbreviated(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_LIMIT} more" if len(names) > NAMED_LIMIT else ""
    return f" ({', '.join(names[:NAMED_LIMIT])}{more})" if names else ""


def _refusal(data_dir: Path, reason: str) -> FlussError:
    return FlussError(
        f"{reason}. The server does not start, and nothing was changed. Restore the newest catalog that you have "
        f"(catalog.sqlite together with its catalog.sqlite-wal), or run 'fluss repair catalog --data {data_dir}', "
        "which lists what can be restored",
        ErrorCode.STORAGE_EXCEPTION,
    )
