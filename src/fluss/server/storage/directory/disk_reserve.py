"""Files that only take room, `DIR/reserve-*`: what is left for removing things when others have filled the disk.

Our own writes leave the last megabytes of a disk alone, but other programs do not know of that. With no byte free, the
catalog could not note a drop, SQLite and RocksDB could not make the small files that they need to open anything, and
the way out of a full disk was closed. So whoever finds hardly any room where it matters removes such a file first, and
uses what that gives: starts and openings of buckets one, drops the other, so that openings leave a drop its room. The
coordinator makes them again when there is room.

Any process and thread may call anything here at any time.
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
# Of each. Opening a key-value store takes some 100 KB, a drop some 50 KB of SQLite's log.
RESERVE_BYTES = 1024 * 1024
# The first are made when a server has run for this long: one that runs for moments needs none.
KEEP_INTERVAL_MS = 10_000

_BLOCK_BYTES = 512


def room_for_opening(data_dir: Path) -> None:
    """Before a start and before a bucket is opened: give up a reserve if hardly anything else is left."""
    _release_if_needed(data_dir, OPENING_FILE_NAME)


def room_for_dropping(data_dir: Path) -> None:
    """Before something is removed: the same."""
    _release_if_needed(data_dir, OPENING_FILE_NAME)
    _release_if_needed(data_dir, DROPPING_FILE_NAME)


def _release_if_needed(data_dir: Path, name: str) -> None:
    if FileSystem().free_bytes(str(data_dir)) >= RESERVE_BYTES // 2:
        return
    try:
        (data_dir / name).unlink()
    except OSError:
        return  # It is used up, and what comes next says what is missing.
    logger.warning("the disk of %s is full: %s, %d bytes, is used now; make room", data_dir, name, RESERVE_BYTES)


def keep_reserves(data_dir: Path) -> None:
    """Make the files that are not there, or are copies that take no room; not while the disk is nearly full."""
    for name in (DROPPING_FILE_NAME, OPENING_FILE_NAME):
        try:
            _keep(data_dir, data_dir / name)
        except OSError as error:
            logger.debug("no reserve for a full disk: %s", error)  # the next look tries again


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
