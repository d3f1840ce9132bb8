"""Placeholder files, `DIR/reserve-*`: disk space that is given up when other programs have filled the disk.

Our own writes leave the last megabytes of a disk free, but other programs do not know that. With no byte free, the
catalog could not record a drop, and SQLite and RocksDB could not create the small files that they need to open
anything, so that nothing could be removed to make room. An operation that must not fail for lack of space therefore
deletes one of these files first: starts and openings of buckets use one, drops also the other, so that openings leave
space for a drop. The coordinator creates the files again when there is room.

Any process and thread may call these functions at any time.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.options import RESERVED_FREE_BYTES

logger = logging.getLogger(__name__)

OPENING_FILE_NAME = "reserve-for-opening"
DROPPING_FILE_NAME = "reserve-for-dropping"
# Per file. Opening a key-value store takes about 100 KB, a drop about 50 KB of SQLite's log.
RESERVE_BYTES = 1024 * 1024
# The files are first created after a server has run for this long: a short-lived server needs none.
KEEP_INTERVAL_MS = 10_000

_BLOCK_BYTES = 512


def make_room_for_opening(data_dir: Path) -> None:
    """Delete the reserve for openings if the disk is nearly full. Call before a start and before opening a bucket."""
    _release_if_needed(data_dir, OPENING_FILE_NAME)


def make_room_for_dropping(data_dir: Path) -> None:
    """Delete both reserves if the disk is nearly full. Call before something is dropped."""
    _release_if_needed(data_dir, OPENING_FILE_NAME)
    _release_if_needed(data_dir, DROPPING_FILE_NAME)


def _release_if_needed(data_dir: Path, name: str) -> None:
    if FileSystem().free_bytes(str(data_dir)) >= RESERVE_BYTES // 2:
        return
    try:
        (data_dir / name).unlink()
    except OSError:
        return  # Already used up; the operation that follows reports what is missing.
    logger.warning(
        "the disk of %s is full: deleted %s to gain %d bytes; free some disk space", data_dir, name, RESERVE_BYTES
    )


def keep_reserves(data_dir: Path) -> None:
    """Create the reserve files that are missing or are sparse copies, unless the disk is nearly full."""
    for name in (DROPPING_FILE_NAME, OPENING_FILE_NAME):
        try:
            _keep(data_dir, data_dir / name)
        except OSError as error:
            logger.debug("cannot create a reserve for a full disk: %s", error)  # the next round tries again


def _keep(data_dir: Path, path: Path) -> None:
    if path.exists() and path.stat().st_blocks * _BLOCK_BYTES >= RESERVE_BYTES:
        return
    if FileSystem().free_bytes(str(data_dir)) < RESERVED_FREE_BYTES + RESERVE_BYTES:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
    finally:
        os.close(descriptor)
