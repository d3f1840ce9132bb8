"""Removal of the directories of dropped tables and partitions, with their remote objects.

A server may die between the drop of a table and the removal of its files, so files of dropped tables are normal. They
never affect a start, because they are removed in the background.

A directory is removed only if it is known to be dropped: the catalog does not have the table or partition, and there is
either a record of the drop in the catalog or the marker of a removal that had begun. That the catalog lacks it is not
enough, because a catalog may be lost, damaged or old; the next start handles such directories (`server.start_check`).

Remote objects are found through the record in the local directory, never by listing the store, which other servers may
share. As long as they cannot be deleted, the local directory stays, for the next try.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from pathlib import Path

from fluss.errors import FlussError
from fluss.server.catalog import Catalog
from fluss.server.catalog.drop_records import PARTITION_KIND, TABLE_KIND, Dropped
from fluss.server.storage.directory.table_directories import (
    DATA_DIRECTORY_NAME,
    FoundDirectory,
    bucket_directories,
    list_directories,
    mark_dropped,
)
from fluss.server.storage.files import FileSystem
from fluss.server.storage.remote_store import RemoteStore
from fluss.server.tablet.kv_snapshots import bucket_snapshots
from fluss.server.tablet.kv_snapshots.record import read_record as read_snapshot_record
from fluss.server.tablet.remote import remote_log

logger = logging.getLogger(__name__)

# Other tablets close their buckets of a dropped table within this time; their files are not removed earlier.
GRACE_SECONDS = 1.0


class DroppedFiles:
    """Finds and removes the files of dropped tables. Runs in the event loop; the worker does the file operations."""

    def __init__(
        self, data_dir: Path, catalog: Catalog, store: RemoteStore, worker: Executor, files: FileSystem
    ) -> None:
        self._directory = data_dir / DATA_DIRECTORY_NAME
        self._catalog = catalog
        self._store = store
        self._worker = worker
        self._files = files
        self._without_files: set[tuple[str, int]] = set()

    async def search(self) -> None:
        """Remove directories of dropped tables, and the records of drops that have no files left."""
        loop, catalog = asyncio.get_running_loop(), self._catalog
        found = await loop.run_in_executor(self._worker, list_directories, self._directory)
        catalog.refresh()
        leftovers = dropped_directories(
            found,
            catalog.store.drops.all(),
            lambda table_id: catalog.table_by_id(table_id) is not None,
            lambda table_id, partition_id: catalog.partition(table_id, partition_id) is not None,
        )
        if leftovers:
            await asyncio.sleep(GRACE_SECONDS)
        for directory in leftovers:
            if await loop.run_in_executor(self._worker, remove_directory, directory, self._store, self._files):
                logger.info("removed %s, its table or partition was dropped", directory)
        self._forget_drops(found)

    def _forget_drops(self, found: Iterable[FoundDirectory]) -> None:
        """Remove records without files in this search and the previous one: a late opening may create files again."""
        drops = self._catalog.store.drops
        without = notes_without_files(drops.noted(), found)
        done, self._without_files = without & self._without_files, without
        if done:
            drops.forget(done)


def dropped_directories(
    found: Iterable[FoundDirectory],
    dropped: Dropped,
    table_exists: Callable[[int], bool],
    partition_exists: Callable[[int, int], bool],
) -> list[Path]:
    """The directories that are known to belong to a dropped table or partition."""
    known: list[Path] = []
    for directory in found:
        table_id, partition_id = directory.table_id, directory.partition_id
        if partition_id is None:
            is_dropped = not table_exists(table_id) and (table_id in dropped.tables or directory.is_marked)
        else:  # partitions of a dropped table are removed with it
            is_dropped = (
                table_exists(table_id)
                and not partition_exists(table_id, partition_id)
                and (partition_id in dropped.partitions or directory.is_marked)
            )
        if is_dropped:
            known.append(directory.path)
    return known


def notes_without_files(notes: Iterable[tuple[str, int]], found: Iterable[FoundDirectory]) -> set[tuple[str, int]]:
    """The records of drops (kind and id) that have no directory any more."""
    there = {
        (TABLE_KIND, item.table_id) if item.partition_id is None else (PARTITION_KIND, item.partition_id)
        for item in found
    }
    return set(notes) - there


def remove_directory(directory: Path, store: RemoteStore, files: FileSystem) -> bool:
    """Remove a directory and the remote objects of its buckets, in a worker thread; False if it has to be retried."""
    try:
        for bucket_directory in bucket_directories(directory):
            _remove_remote(bucket_directory, store)
        mark_dropped(directory, files)
        shutil.rmtree(directory)
    except FileNotFoundError:
        return True  # another tablet was faster
    except (OSError, ValueError, FlussError) as error:
        logger.warning("cannot remove the files of a dropped table in %s yet: %s", directory, error)
        return False
    return True


def _remove_remote(bucket_directory: Path, store: RemoteStore) -> None:
    try:
        record = remote_log.read_record(bucket_directory)
        if record is not None:
            remote_log.destroy_remote(store, record)
        snapshots = read_snapshot_record(bucket_directory)
        if snapshots is not None:
            bucket_snapshots.destroy_remote(store, snapshots)
    except ValueError as error:
        logger.warning("%s: cannot remove the remote objects of a dropped bucket: %s", bucket_directory, error)
