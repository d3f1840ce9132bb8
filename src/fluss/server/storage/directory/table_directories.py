"""The directories of tables and partitions below `DIR/data`: how they are found, marked and moved aside.

    DIR/data/{database}/{table}-{table_id}/
    DIR/data/{database}/{table}-{table_id}/{partition}-p{partition_id}/
    DIR/orphans/{database}/...         the same names: directories that the catalog does not know

Only directories with names of these forms are touched. A directory whose removal has begun holds the marker `dropped`,
so that half a table is never taken for a whole one, whatever happens to the catalog meanwhile. The marker counts only
if the catalog does not have the table (or the partition).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fluss.server.storage.directory.table_record import RECORD_FILE_NAME
from fluss.server.storage.files import FileSystem, make_directories

DATA_DIRECTORY_NAME = "data"
ORPHANS_DIRECTORY_NAME = "orphans"
DROPPED_MARKER_NAME = "dropped"
# Files that the server keeps in a table's directory beside its buckets. They are removed with the last bucket.
TABLE_FILE_NAMES = frozenset({DROPPED_MARKER_NAME, RECORD_FILE_NAME, f"{RECORD_FILE_NAME}.tmp"})

_TABLE_DIRECTORY = re.compile(r".+-(\d{1,19})")
_PARTITION_DIRECTORY = re.compile(r".*-p(\d{1,19})", re.DOTALL)
_BUCKET_DIRECTORY = re.compile(r"log-\d+")


class FoundDirectory(NamedTuple):
    """A directory below `data`; `partition_id` is None for the directory of a whole table."""

    path: Path
    table_id: int
    partition_id: int | None

    @property
    def is_marked(self) -> bool:
        """True if the removal of the directory has begun."""
        return (self.path / DROPPED_MARKER_NAME).exists()


def list_directories(data_directory: Path) -> list[FoundDirectory]:
    """All table and partition directories, each table before its partitions."""
    found: list[FoundDirectory] = []
    for database in subdirectories(data_directory):
        for table in subdirectories(database):
            match = _TABLE_DIRECTORY.fullmatch(table.name)
            if match is None:
                continue
            table_id = int(match[1])
            found.append(FoundDirectory(table, table_id, None))
            for partition in subdirectories(table):
                partition_match = _PARTITION_DIRECTORY.fullmatch(partition.name)
                if partition_match is not None:
                    found.append(FoundDirectory(partition, table_id, int(partition_match[1])))
    return found


def bucket_directories(directory: Path) -> list[Path]:
    """The bucket directories below the directory of a table or partition, or `directory` itself if it is one."""
    if _BUCKET_DIRECTORY.fullmatch(directory.name):
        return [directory]
    return [found for child in subdirectories(directory) for found in bucket_directories(child)]


def subdirectories(directory: Path) -> Iterable[Path]:
    """The directories in a directory, sorted by name, without symbolic links. Empty if it does not exist."""
    try:
        children = sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [child for child in children if child.is_dir() and not child.is_symlink()]


def mark_dropped(directory: Path, files: FileSystem) -> None:
    """Mark a directory whose removal begins; do nothing if it is missing or the disk has no room for a file."""
    with contextlib.suppress(OSError):  # the catalog has the drop: the mark is only needed if the catalog is lost
        files.close(files.open_write(str(directory / DROPPED_MARKER_NAME)))


def remove_empty(directories: Iterable[Path], files: FileSystem) -> None:
    """Remove directories, given from the inside out, until one holds more than the server's own files."""
    for directory in directories:
        try:
            names = set(files.list_directory(str(directory)))
            if not names <= TABLE_FILE_NAMES:
                return  # Other buckets are still in it; the removal of the last one removes the directory.
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    files.unlink(str(directory / name))
            files.remove_directory(str(directory))
        except OSError:
            return  # Another tablet was faster, or the search for leftover files will remove it.


def move_to_orphans(data_dir: Path, directory: Path, files: FileSystem) -> Path:
    """Move a directory below `DIR/data` to the orphans, with everything in it; returns its new path."""
    target = data_dir / ORPHANS_DIRECTORY_NAME / directory.relative_to(data_dir / DATA_DIRECTORY_NAME)
    make_directories(files, str(target.parent))
    number = 1
    while target.exists():
        target = target.with_name(f"{directory.name}.{number}")
        number += 1
    os.rename(directory, target)
    files.sync_directory(str(target.parent))
    files.sync_directory(str(directory.parent))
    return target
