"""The rows of one bucket in RocksDB.

Keys are primary-key bytes, values are schema id and row. The empty key, which is no valid primary key, holds the
`Applied` note: how much of the changelog the rows contain. It is written in the same write batch as the last rows it
covers.

Crash safety. RocksDB's own log is off. Write batches reach its files in the order in which they were written and never
in part, so after a crash the store is as it was after some earlier write call. A group of rows may take several calls;
the note moves only with the last one, and replaying a group again gives the same rows. So after any crash, replaying
the log from the note on gives exactly the state of the log.

A store is created under another name and renamed when it is complete, so a crash during creation leaves nothing that
looks like a store. Only one thread at a time may call: the opening thread, then the loop.
"""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple, TypeVar

from rocksdict import Checkpoint, Rdict, ReadOptions, WriteBatch

from fluss.errors import ErrorCode, FlussError
from fluss.model.formats import refuse_newer
from fluss.server.storage.kv import limits
from fluss.server.storage.kv.limits import KvResources
from fluss.server.storage.kv.store_options import store_options, without_log
from fluss.server.storage.kv.write_order import written_order

_logger = logging.getLogger(__name__)

NOTE_KEY = b""
FIRST_KEY = b"\0"
_NOTE = Struct("<bqqqq")
_NOTE_VERSION = 1
_IDENTITY_NAME = "store-id"
_CREATING_SUFFIX = ".creating"
_DAMAGED_SUFFIX = ".damaged"
_MARKER_SUFFIX = ".is-damaged"
UNKNOWN_ROW_COUNT = -1
Rows = list[tuple[bytes, bytes]]
_Result = TypeVar("_Result")


class Applied(NamedTuple):
    """How much of the changelog the rows contain: all below `log_offset`, which is at `position` of a segment.

    `row_count` is UNKNOWN_ROW_COUNT for tables whose changelog does not distinguish inserts from updates.
    """

    log_offset: int = 0
    row_count: int = 0
    segment_base: int = 0
    position: int = 0


class StoreDamagedError(Exception):
    """The files of a store are damaged or incomplete; it has to be rebuilt from the changelog."""


class StoreView(NamedTuple):
    """The rows at one moment, as lists in key order, and the changelog offset of that moment.

    The iterator keeps showing the moment of its creation, and keeps files alive until it is dropped. (The snapshots of
    the bindings cannot be used: iterators over them also show later rows.)
    """

    applied: Applied
    row_lists: Iterator[Rows]


class KvStore:
    """An open RocksDB database with the rows of one bucket."""

    def __init__(self, database: Rdict, directory: Path, applied: Applied) -> None:
        self._database = database
        self.directory = directory
        self.applied = applied
        self._write_options = without_log()
        self.is_closed = False
        self._is_compacting = True
        # Set when a call to RocksDB failed, for damaged rows for instance: the store has to be opened again.
        self.failure: FlussError | None = None

    @classmethod
    def open(cls, directory: Path, resources: KvResources) -> KvStore:
        """Open the store in `directory`, or create an empty one; StoreDamagedError if the files are not a store."""
        if not directory.exists():
            _create(directory, resources)
        if _marker(directory).exists():
            raise StoreDamagedError(f"{directory}: damaged rows were found earlier")
        try:
            database = _open_database(directory, resources)
            note = database.get(NOTE_KEY)
        except Exception as error:  # RocksDB's bindings raise plain Exception
            if _is_damage(error):
                raise StoreDamagedError(f"{directory}: {error}") from error
            text = f"cannot open the key-value store in {directory}: {error}; nothing was removed, check the disk"
            raise FlussError(text, _code(error)) from error
        try:
            applied = read_note(note, directory)
        except FlussError:  # a later version wrote it: release the files for a server that can read them
            database.close()
            raise
        return cls(database, directory, applied)

    @property
    def applied_offset(self) -> int:
        """The first changelog offset that the rows do not contain."""
        return self.applied.log_offset

    def multi_get(self, keys: list[bytes]) -> list[bytes | None]:
        """The values of keys, in their order; None for missing keys."""
        if not keys:
            return []
        values: Any = self._call(self._database.get, keys)
        return values  # type: ignore[no-any-return]

    def write(self, entries: Mapping[bytes, bytes | None], applied: Applied) -> None:
        """Store rows (None removes) and the note `applied` that goes with them; in several calls if there are many."""
        self.write_all((entries,), applied)

    def write_all(self, groups: Sequence[Mapping[bytes, bytes | None]], applied: Applied) -> None:
        """Store several groups of rows; if groups have the same key, the last one wins."""
        for _ in self.write_steps(groups, applied):
            pass

    def write_steps(self, groups: Sequence[Mapping[bytes, bytes | None]], applied: Applied) -> Iterator[None]:
        """Store groups of rows in steps of a few milliseconds. Between steps the store matches no state of the log."""
        assert applied.log_offset >= self.applied.log_offset, "the applied offset never decreases"
        note = _NOTE.pack(_NOTE_VERSION, *applied)
        chunk_rows, remaining = limits.WRITE_CHUNK_ROWS, sum(map(len, groups))
        orders = [written_order(group) for group in groups]
        keys = chain.from_iterable([keys for keys, _ in orders])
        values = chain.from_iterable([values for _, values in orders])
        # Values are never empty, and this is several times faster than searching for None.
        has_deletes = not all(all(group.values()) for group in groups)
        while True:
            batch = WriteBatch(raw_mode=True)
            if has_deletes:
                _fill(batch, islice(keys, chunk_rows), islice(values, chunk_rows))
            else:
                deque(map(batch.put, islice(keys, chunk_rows), islice(values, chunk_rows)), 0)
            remaining -= chunk_rows
            if remaining <= 0:
                batch.put(NOTE_KEY, note)
            self._call(self._database.write, batch, self._write_options)
            if remaining <= 0:
                break
            yield
        self.applied = applied

    def scan(self, start: bytes = FIRST_KEY, limit: int | None = None) -> list[tuple[bytes, bytes]]:
        """Keys and values in key order from `start` on, at most `limit` of them."""
        return self._call(lambda: list(islice(chain.from_iterable(self._row_lists(start)), limit)))

    def scan_prefix(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Keys and values of the keys that begin with `prefix`, in key order."""

        def collect() -> list[tuple[bytes, bytes]]:
            found = []
            for key, value in chain.from_iterable(self._row_lists(prefix)):
                if not key.startswith(prefix):
                    break
                found.append((key, value))
            return found

        return self._call(collect)

    def view(self, start: bytes = FIRST_KEY, end: bytes | None = None) -> StoreView:
        """The rows of this moment from `start` to `end`. Without `end`, reading also skips deleted keys at the end."""
        return StoreView(self.applied, self._call(self._row_lists, start, end))

    @property
    def is_pressed(self) -> bool:
        """True if compaction or flushing is so far behind that new rows should wait."""
        number = self._database.property_int_value
        return (
            (number("rocksdb.num-immutable-mem-table") or 0) >= limits.PRESSURE_WRITE_BUFFERS
            or (number("rocksdb.num-files-at-level0") or 0) >= limits.PRESSURE_FILES
            or bool(number("rocksdb.is-write-stopped"))
        )

    @property
    def file_bytes(self) -> int:
        """The size of the store's files."""
        return self._database.property_int_value("rocksdb.live-sst-files-size") or 0

    @property
    def stored_bytes(self) -> int:
        """The size of the store's files and of the rows that are not in files yet."""
        return self.file_bytes + (self._database.property_int_value("rocksdb.cur-size-all-mem-tables") or 0)

    def files(self) -> list[dict[str, Any]]:
        """RocksDB's description of each file: level, start_key, end_key, size."""
        return self._call(self._database.live_files)

    def allow_compaction(self, allowed: bool) -> None:
        """Switch compaction on or off; a running compaction continues."""
        if allowed != self._is_compacting:
            self._call(self._database.set_options, {"disable_auto_compactions": "false" if allowed else "true"})
            self._is_compacting = allowed
            if not allowed:
                text, counted = "compaction of the store in %s is paused until there is more room", {"is_counted": True}
                _logger.warning(text, self.directory, extra=counted)

    def flush(self, *, wait: bool = False) -> None:
        """Flush rows to files; without `wait`, in RocksDB's own threads."""
        self._call(self._database.flush, wait)

    @property
    def is_flushing(self) -> bool:
        """True while rows are being flushed to files."""
        number = self._database.property_int_value
        return bool(number("rocksdb.mem-table-flush-pending") or number("rocksdb.num-running-flushes"))

    @property
    def identity(self) -> str:
        """A string that is unique to this store; a rebuilt store gets another one.

        RocksDB's own identity is part of a snapshot, so a restored store would have that of the lost store.
        """
        file = self.directory / _IDENTITY_NAME
        if not file.exists():
            file.write_text(str(uuid.uuid4()))
        return file.read_text()

    def link_files(self, directory: Path) -> None:
        """Flush rows and link all files into a new directory; any thread. An OSError leaves the store unchanged."""
        try:
            Checkpoint(self._database).create_checkpoint(str(directory))
        except Exception as error:  # RocksDB's bindings raise plain Exception
            raise OSError(f"cannot create a checkpoint of the store in {self.directory}: {error}") from error

    def close(self) -> None:
        """Flush all rows to files and close the database."""
        if self.is_closed:
            return
        self.is_closed = True
        try:
            self._database.flush(True)
        finally:
            self._database.close()

    def abandon(self) -> None:
        """Close a store whose files are no longer needed: its last rows need not reach them."""
        if self.is_closed:
            return
        self.is_closed = True
        try:
            self._database.close()
        except Exception as error:  # RocksDB's bindings raise plain Exception
            _logger.info("the store in %s was not closed cleanly: %s", self.directory, error)

    def _row_lists(self, from_key: bytes, end: bytes | None = None) -> Iterator[Rows]:
        first_key = max(from_key, FIRST_KEY)
        items: Any = self._database.items(from_key=first_key, read_opt=_up_to(end))
        return self._to_the_end(items, first_key, end)

    def _to_the_end(self, items: Iterator[tuple[bytes, bytes]], last_key: bytes, end: bytes | None) -> Iterator[Rows]:
        """Yield lists of rows, each longer than the one before, so that reading few rows and reading all is fast.

        At a damaged block the bindings stop as if there were no more rows, so the end is checked once more.
        """
        rows = 1
        while chunk := list(islice(items, rows)):
            last_key = chunk[-1][0]
            row_bytes = sum([len(value) for _, value in chunk]) // len(chunk) + 1
            yield chunk
            rows = max(1, min(2 * rows, limits.MAX_READ_AHEAD_ROWS, limits.MAX_READ_AHEAD_BYTES // row_bytes))
        self._call(_check_end, self._database, last_key, end)

    def _call(self, operation: Callable[..., _Result], *arguments: object) -> _Result:
        try:
            return operation(*arguments)
        except FlussError:
            raise
        except Exception as error:  # RocksDB's bindings raise plain Exception
            text = f"the key-value store in {self.directory} failed: {error}; check the disk"
            self.failure = FlussError(text, ErrorCode.KV_STORAGE_EXCEPTION)
            if _is_damage(error):
                _mark_damaged(self.directory)
            raise self.failure from error


def _fill(batch: WriteBatch, keys: Iterator[bytes], values: Iterator[bytes | None]) -> None:
    put, delete = batch.put, batch.delete
    for key, value in zip(keys, values, strict=True):
        if value is None:
            delete(key)
        else:
            put(key, value)


def put_aside(directory: Path) -> None:
    """Move an unusable store, if there is one, out of the way; the latest one is kept for inspection."""
    if directory.exists():
        aside = directory.with_name(directory.name + _DAMAGED_SUFFIX)
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(directory, aside)
    _marker(directory).unlink(missing_ok=True)


def put_in_place(made: Path, directory: Path) -> None:
    """Move a store that was built elsewhere, and is closed and synced, to its place."""
    os.replace(made, directory)
    descriptor = os.open(directory.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(directory: Path) -> None:
    """Remove a store's directory with everything in it; it may be missing."""
    shutil.rmtree(directory, ignore_errors=True)


def _is_damage(error: Exception) -> bool:
    """True if files are broken or missing; False for temporary causes such as a full disk or a limit."""
    text = str(error)
    return "Corruption" in text or "No such file" in text


def _code(error: Exception) -> ErrorCode:
    """The error code for a store that cannot be opened: a full disk is reported at once, other causes are retried.

    It is only for opening. When an open store fails, rows may already be in the changelog, and clients have to retry.
    """
    return ErrorCode.DISK_WRITE_LOCKED if "No space left" in str(error) else ErrorCode.KV_STORAGE_EXCEPTION


def _marker(directory: Path) -> Path:
    return directory.with_name(directory.name + _MARKER_SUFFIX)


def _mark_damaged(directory: Path) -> None:
    """Leave a marker file, since the next opening may not notice the damaged rows."""
    _logger.error("the store in %s is damaged and will be rebuilt from its changelog", directory)
    try:
        _marker(directory).touch()
    except OSError as error:
        _logger.error("cannot mark the store in %s as damaged: %s", directory, error)


def _create(directory: Path, resources: KvResources) -> None:
    creating = directory.with_name(directory.name + _CREATING_SUFFIX)
    shutil.rmtree(creating, ignore_errors=True)
    creating.parent.mkdir(parents=True, exist_ok=True)
    try:
        _open_database(creating, resources).close()
        os.replace(creating, directory)
    except Exception as error:  # RocksDB's bindings raise plain Exception
        text = f"cannot create a key-value store in {directory}: {error}; check the disk"
        raise FlussError(text, _code(error)) from error


def _open_database(directory: Path, resources: KvResources) -> Rdict:
    # Without options for the column family, the bindings would use those stored in the files for it, which have no
    # shared cache.
    families = {"default": store_options(resources)}
    return Rdict(str(directory), store_options(resources), column_families=families)


def read_note(note: bytes | None, directory: Path) -> Applied:
    """Decode the note of a store; a store without one is empty. FlussError for a note of a later version."""
    if note is None:
        return Applied()
    refuse_newer(f"key-value store {directory}", note[0] if note else None, _NOTE_VERSION)
    if len(note) != _NOTE.size or note[0] != _NOTE_VERSION:
        raise StoreDamagedError(f"{directory}: cannot decode the note about the applied offset: {note.hex()}")
    return Applied(*_NOTE.unpack(note)[1:])


def _up_to(end: bytes | None) -> ReadOptions | None:
    """Return RocksDB's options for reading with an iterator that ends before a key."""
    if end is None:
        return None
    options = ReadOptions()
    options.set_iterate_upper_bound(end)
    return options


def _check_end(database: Rdict, last_key: bytes, end: bytes | None) -> None:
    """Raise RocksDB's error if the rows after a key, up to `end`, cannot be read."""
    behind = database.iter(_up_to(end))
    behind.seek(last_key)
    if behind.valid():
        behind.next()
    behind.status()
