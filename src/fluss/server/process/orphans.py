"""Lists the directories that starts of the server have moved to `DIR/orphans`, and deletes them on request.

Remote objects of orphans are never deleted: the directory may be a copy, and the original may still use them. The
caller has locked the data directory.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from fluss.errors import FlussError
from fluss.server.storage.directory.table_directories import ORPHANS_DIRECTORY_NAME, bucket_directories, subdirectories
from fluss.server.storage.directory.table_record import read_record
from fluss.server.tablet.kv_snapshots import record as kv_snapshots
from fluss.server.tablet.remote import remote_log


class Orphan(NamedTuple):
    """The directory of a table, or single partitions of it, that the catalog did not know."""

    path: Path
    name: str
    """The name of its table if a record has it, else of the directory."""
    size_bytes: int
    remote_directories: tuple[str, ...]
    """The locations of its segments and snapshots in remote storage."""


def list_orphans(data_dir: Path) -> list[Orphan]:
    """Return all directories that were moved to `DIR/orphans`, sorted by database and name."""
    databases = subdirectories(data_dir / ORPHANS_DIRECTORY_NAME)
    return [_orphan(directory) for database in databases for directory in subdirectories(database)]


def _orphan(directory: Path) -> Orphan:
    record = read_record(directory)
    remote: dict[str, None] = {}
    for bucket in bucket_directories(directory):
        for found in (_read_segments(bucket), _read_snapshots(bucket)):
            if found is not None:
                remote[found] = None
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    return Orphan(directory, record.name if record is not None else directory.name, size, tuple(remote))


def _read_segments(bucket_directory: Path) -> str | None:
    try:
        record = remote_log.read_record(bucket_directory)
    except (ValueError, FlussError):
        return None  # an unreadable record does no harm: nothing remote is deleted
    return None if record is None else record.tablet_directory


def _read_snapshots(bucket_directory: Path) -> str | None:
    try:
        record = kv_snapshots.read_record(bucket_directory)
    except (ValueError, FlussError):
        return None
    return None if record is None else record.tablet_directory


def delete_orphan(orphan: Orphan, data_dir: Path) -> None:
    """Delete the directory of an orphan, and parents that become empty."""
    shutil.rmtree(orphan.path)
    parent = orphan.path.parent
    while parent != data_dir and not any(parent.iterdir()):
        parent.rmdir()
        parent = parent.parent
