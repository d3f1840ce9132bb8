"""Directories of tables and partitions that no longer exist: found, and removed with their remote objects.

A server may die between the drop of a table and the removal of its files, so files of unknown tables are normal. They
never matter for a start: this runs in the background.

Why it is safe to remove them: ids are never used twice, a directory is made only for a table that is in the catalog,
and the caller refreshes its catalog *after* the directories were listed. So a listed directory whose id is unknown
belongs to a table that was dropped.

Only names that look like ours are touched. Remote objects are found through the record in the local directory, never by
listing the store, which others may share; while they cannot be deleted the local directory stays, for the next try.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from fluss.errors import FlussError
from fluss.server.tablet import remote_log
from fluss.server.tablet.kv_snapshots import bucket_snapshots
from fluss.server.tablet.kv_snapshots.record import read_record as read_snapshot_record
from fluss.server.tablet.remote_store import RemoteStore

logger = logging.getLogger(__name__)

_TABLE_DIRECTORY = re.compile(r".+-(\d{1,19})")
_PARTITION_DIRECTORY = re.compile(r".*-p(\d{1,19})", re.DOTALL)
_BUCKET_DIRECTORY = re.compile(r"log-\d+")


class FoundDirectory(NamedTuple):
    """A directory below `data`; `partition_id` None for the directory of a whole table."""

    path: Path
    table_id: int
    partition_id: int | None


def list_directories(data_directory: Path) -> list[FoundDirectory]:
    """All table and partition directories, in a worker thread."""
    found: list[FoundDirectory] = []
    for database in _subdirectories(data_directory):
        for table in _subdirectories(database):
            match = _TABLE_DIRECTORY.fullmatch(table.name)
            if match is None:
                continue
            table_id = int(match[1])
            found.append(FoundDirectory(table, table_id, None))
            for partition in _subdirectories(table):
                partition_match = _PARTITION_DIRECTORY.fullmatch(partition.name)
                if partition_match is not None:
                    found.append(FoundDirectory(partition, table_id, int(partition_match[1])))
    return found


def leftover_directories(
    found: Iterable[FoundDirectory], table_exists: Callable[[int], bool], partition_exists: Callable[[int, int], bool]
) -> list[Path]:
    """Those of the found directories that belong to nothing; a pure decision."""
    leftovers: list[Path] = []
    for directory in found:
        if not table_exists(directory.table_id):
            if directory.partition_id is None:  # its partitions go with it
                leftovers.append(directory.path)
        elif directory.partition_id is not None and not partition_exists(directory.table_id, directory.partition_id):
            leftovers.append(directory.path)
    return leftovers


def remove_directory(directory: Path, store: RemoteStore) -> bool:
    """Remove a directory with everything in it and what its buckets have in remote storage, in a worker thread."""
    try:
        for bucket_directory in _bucket_directories(directory):
            _remove_remote(bucket_directory, store)
        shutil.rmtree(directory)
    except FileNotFoundError:
        return True  # another tablet was faster
    except (OSError, ValueError, FlussError) as error:
        logger.warning("files of a dropped table in %s cannot be removed yet: %s", directory, error)
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
        logger.warning("%s: remote objects of a dropped bucket stay: %s", bucket_directory, error)


def _bucket_directories(directory: Path) -> list[Path]:
    if _BUCKET_DIRECTORY.fullmatch(directory.name):
        return [directory]
    children = list(_subdirectories(directory))
    return [found for child in children for found in _bucket_directories(child)]


def _subdirectories(directory: Path) -> Iterable[Path]:
    try:
        children = sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [child for child in children if child.is_dir() and not child.is_symlink()]
