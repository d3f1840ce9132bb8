"""Whether the catalog and the directories of the tables belong together, before anything is served.

Nobody else has the data directory open: the supervisor calls this before it forks, an embedding program before its
server's thread starts. What a catalog does not name is never deleted. Directories of tables and partitions that it
neither has nor knows to be dropped are put aside in `DIR/orphans`, with a warning, and their ids are never handed out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from fluss.server.catalog import CatalogStore
from fluss.server.catalog.database_file import CATALOG_FILE_NAME
from fluss.server.catalog.stored import StoredCatalog, read_stored_catalog
from fluss.server.storage.files import FileSystem
from fluss.server.storage.table_directories import (
    DATA_DIRECTORY_NAME,
    ORPHANS_DIRECTORY_NAME,
    FoundDirectory,
    list_directories,
    move_to_orphans,
)

logger = logging.getLogger(__name__)

NAMED_ORPHANS_LIMIT = 5
_NO_CATALOG = StoredCatalog.empty()


def check_tables(data_dir: Path) -> None:
    """Look at all directories of tables; put aside what the catalog does not know."""
    found = list_directories(data_dir / DATA_DIRECTORY_NAME)
    if not found:
        return
    catalog = read_stored_catalog(data_dir / CATALOG_FILE_NAME) or _NO_CATALOG
    unknown = unknown_directories(found, catalog)
    if unknown:
        _put_aside(data_dir, unknown)


def unknown_directories(found: Iterable[FoundDirectory], catalog: StoredCatalog) -> list[FoundDirectory]:
    """Directories that the catalog neither has nor knows to be dropped; partitions of an unknown table go with it."""
    unknown: list[FoundDirectory] = []
    for directory in found:
        table_id, partition_id = directory.table_id, directory.partition_id
        if partition_id is None:
            is_known = table_id in catalog.tables or table_id in catalog.dropped.tables
        else:
            is_known = (
                table_id not in catalog.tables
                or catalog.has_partition(table_id, partition_id)
                or partition_id in catalog.dropped.partitions
            )
        if not is_known and not directory.is_marked:
            unknown.append(directory)
    return unknown


def _put_aside(data_dir: Path, unknown: list[FoundDirectory]) -> None:
    store = CatalogStore(data_dir / CATALOG_FILE_NAME)
    try:
        # Before they are moved: a new table with such an id would share the remote objects of the old one.
        everything = list_directories(data_dir / DATA_DIRECTORY_NAME)
        store.never_use_ids(
            max(directory.table_id for directory in everything),
            max((directory.partition_id for directory in everything if directory.partition_id is not None), default=-1),
        )
    finally:
        store.close()
    moved = [move_to_orphans(data_dir, directory.path, FileSystem()) for directory in unknown]
    names = ", ".join(str(path.relative_to(data_dir / ORPHANS_DIRECTORY_NAME)) for path in moved[:NAMED_ORPHANS_LIMIT])
    more = f" and {len(moved) - NAMED_ORPHANS_LIMIT} more" if len(moved) > NAMED_ORPHANS_LIMIT else ""
    logger.warning(
        "%d directories of tables or partitions that the catalog neither has nor knows to be dropped were moved to %s: "
        "%s%s. Nothing was deleted; 'fluss repair orphans --data %s' shows what they are",
        len(moved),
        data_dir / ORPHANS_DIRECTORY_NAME,
        names,
        more,
        data_dir,
    )
