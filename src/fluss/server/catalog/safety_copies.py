"""Copies of the catalog beside it, in case it is damaged: `catalog.copy-TIME.sqlite`.

A copy is made with SQLite's own backup call, which takes a consistent view of a catalog in use and blocks no writer,
into a file that gets its name when it is complete and on disk. The coordinator makes one every `COPY_INTERVAL_SECONDS`
if anything has changed since the last one; a start makes one before it upgrades a catalog of an earlier version. The
newest `COPIES_LIMIT` of each kind are kept. Changes newer than a copy are lost with the catalog, so copies are the
first choice of `fluss repair catalog`, but no guarantee.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fluss.errors import FlussError
from fluss.server.catalog.database_file import CATALOG_FILE_NAME, DatabaseFile, is_missing_or_empty, reading
from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.options import RESERVED_FREE_BYTES

logger = logging.getLogger(__name__)

COPY_INTERVAL_SECONDS = 300.0
# How often the coordinator checks whether a copy is due.
CHECK_INTERVAL_SECONDS = 1.0
COPIES_LIMIT = 3

_NAME = re.compile(r"catalog\.copy-(\d{8}T\d{6}\.\d{6}Z)(-before-upgrade)?\.sqlite")
_UNFINISHED = ".tmp"
# Several copies may be made at the same time, so a file without a final name belongs to no one only when it is old.
UNFINISHED_SECONDS = 3600.0
_TIME_FORMAT = "%Y%m%dT%H%M%S.%fZ"


class SafetyCopies:
    """Makes the regular copies of a running server. Called on the event loop; a thread does the work."""

    def __init__(self, data_dir: Path, file: DatabaseFile) -> None:
        self._data_dir = data_dir
        self._file = file
        self._copied: tuple[int, int] | None = None
        self._is_failing = False

    async def run(self) -> None:
        """Make a copy whenever one is due, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            await self.copy_if_due(time.time())

    async def copy_if_due(self, now_seconds: float) -> None:
        """Make a copy if one is due and something has changed; a failure is logged once, and the copy is retried."""
        try:
            newest = next(iter(list_copies(self._data_dir)), None)
            if newest is not None and abs(now_seconds - newest.stat().st_mtime) < COPY_INTERVAL_SECONDS:
                return
            version = self._file.data_version()
            if version == self._copied or self._file.counter("table_id") == 0:
                return
            await asyncio.get_running_loop().run_in_executor(None, make_copy, self._data_dir)
            self._copied = version
            self._is_failing = False
        except (FlussError, OSError, sqlite3.Error) as error:
            if not self._is_failing:
                logger.warning("cannot make a safety copy of the catalog, will try again: %s", error)
            self._is_failing = True


def list_copies(data_dir: Path) -> list[Path]:
    """Return the safety copies in a data directory, newest first."""
    try:
        names = [name for name in os.listdir(data_dir) if _NAME.fullmatch(name)]
    except FileNotFoundError:
        return []
    return [data_dir / name for name in sorted(names, reverse=True)]


def make_copy(data_dir: Path, *, before_upgrade: bool = False) -> Path:
    """Copy the catalog of a data directory, whether it is in use or not. Blocks until the copy is on disk."""
    catalog, files = data_dir / CATALOG_FILE_NAME, FileSystem()
    free = files.free_bytes(str(data_dir))
    if free < RESERVED_FREE_BYTES + 2 * catalog.stat().st_size:
        raise OSError(
            f"only {free} bytes are free in {data_dir}, which are reserved for the catalog itself; free some space"
        )
    moment = _moment_after(list_copies(data_dir))
    target = data_dir / f"catalog.copy-{moment}{'-before-upgrade' if before_upgrade else ''}.sqlite"
    temporary = target.with_name(f"catalog.copy-{os.getpid()}-{threading.get_ident()}{_UNFINISHED}")
    temporary.unlink(missing_ok=True)
    with closing(sqlite3.connect(catalog)) as source, closing(sqlite3.connect(temporary)) as copy:
        source.backup(copy)
    descriptor = files.open_read(str(temporary))
    try:
        files.fdatasync(descriptor)
    finally:
        files.close(descriptor)
    temporary.replace(target)
    files.sync_directory(str(data_dir))
    _prune(data_dir)
    return target


def _moment_after(copies: Sequence[Path]) -> str:
    """The time for a new name: now, or just after the newest copy, so that names sort by age even if clocks go back."""
    moment = datetime.now(UTC)
    for path in copies:
        match = _NAME.fullmatch(path.name)
        assert match is not None
        with contextlib.suppress(ValueError, OverflowError):  # a file of the user whose digits are not a valid time
            named = datetime.strptime(match[1], _TIME_FORMAT).replace(tzinfo=UTC)
            moment = max(moment, named + timedelta(microseconds=1))
    return moment.strftime(_TIME_FORMAT)


def copy_before_upgrade(data_dir: Path, needed_tables: frozenset[str], format_version: int) -> None:
    """Copy a catalog of an earlier version before this version opens it for the first time."""
    path = data_dir / CATALOG_FILE_NAME
    if is_missing_or_empty(path):
        return
    try:
        with reading(path) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            known = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if known and (version < format_version or not needed_tables <= known):
            copy = make_copy(data_dir, before_upgrade=True)
            logger.info("upgrading the catalog; %s is a copy of the old one", copy)
    except (OSError, sqlite3.Error) as error:  # a damaged catalog gets a better error when it is opened
        logger.warning("cannot copy the catalog before its upgrade: %s", error)


def _prune(data_dir: Path) -> None:
    kinds: dict[bool, int] = {True: 0, False: 0}
    for path in list_copies(data_dir):
        is_before_upgrade = path.stem.endswith("-before-upgrade")
        kinds[is_before_upgrade] += 1
        if kinds[is_before_upgrade] > COPIES_LIMIT:
            path.unlink(missing_ok=True)
    for path in data_dir.glob(f"catalog.copy*{_UNFINISHED}*"):  # also the journal that SQLite keeps beside it
        with contextlib.suppress(FileNotFoundError):
            if abs(time.time() - path.stat().st_mtime) > UNFINISHED_SECONDS:
                path.unlink()
