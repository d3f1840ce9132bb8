"""The rows of one bucket in RocksDB.

Keys are primary-key bytes, values are schema id and row. Under the empty key, which is no primary key, lies the
`Applied` note: how far the changelog is contained. It is written in the same write batch as the last rows it covers.

Crash safety. RocksDB's own log is off. Write batches reach its files in the order in which they were written and never
in parts, so after a crash the store is as it was after some earlier write call. A group of rows may be several calls;
the note moves only with the last one, and replaying a group again gives the same rows. So whatever a crash leaves,
replaying the log from the note on gives exactly the state of the log.

A store is created under another name and renamed when it is complete, so a crash while creating it leaves nothing that
looks like a store. One thread at a time may call: the opening thread, then the loop.
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
    """How far the changelog is contained: everything below `log_offset`, which lies at `position` of a segment.

    `row_count` is UNKNOWN_ROW_COUNT for tables whose changelog does not tell inserts from updates.
    """

    log_offset: int = 0
    row_count: int = 0
    segment_base: int = 0
    position: int = 0


class StoreDamagedError(Exception):
    """The files are not those of a whole store; they can be made anew from the changelog."""


class KvSnapshot(NamedTuple):
    """The rows as they were at one moment, in key order and in pieces, and the changelog offset of that moment.

    The iterator holds on to its moment from its creation on, and keeps files alive until it is dropped. (Snapshots of
    the bindings would not do: iterators made from them show later rows too.)
    """

    applied: Applied
    pieces: Iterator[Rows]


class KvStore:
    """See the module text."""

    def __init__(self, database: Rdict, directory: Path, applied: Applied) -> None:
        self._database = database
        self.directory = directory
        self.applied = applied
        self._write_options = without_log()
        self.is_closed = False
        self._is_compacting = True
        # Set when RocksDB refuses to go on, or has met damaged rows: the store has to be opened again.
        self.failure: FlussError | None = None

    @classmethod
    def open(cls, directory: Path, resources: KvResources) -> KvStore:
        """Open the store in `directory`, or make an empty one; StoreDamagedError when the files are no store."""
        if not directory.exists():
            _create(directory, resources)
        if _marker(directory).exists():
            raise StoreDamagedError(f"{directory}: damaged rows were met")
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
        except FlussError:  # of a later version: let go of it, whoever knows it may come
            database.close()
            raise
        return cls(database, directory, applied)

    @property
    def applied_offset(self) -> int:
        """The next changelog offset that the rows do not contain yet."""
        return self.applied.log_offset

    def multi_get(self, keys: list[bytes]) -> list[bytes | None]:
        """The values of keys, in their order; None for what is not there."""
        if not keys:
            return []
        values: Any = self._call(self._database.get, keys)
        return values  # type: ignore[no-any-return]

    def write(self, entries: Mapping[bytes, bytes | None], applied: Applied) -> None:
        """Store rows (None removes) and how far they bring the store; in several calls when there are many."""
        self.write_all((entries,), applied)

    def write_all(self, groups: Sequence[Mapping[bytes, bytes | None]], applied: Applied) -> None:
        """The same for several groups: a row of a later one wins."""
        for _ in self.write_steps(groups, applied):
            pass

    def write_steps(self, groups: Sequence[Mapping[bytes, bytes | None]], applied: Applied) -> Iterator[None]:
        """The same in steps of a few milliseconds. Between them the store is in no state that the log had."""
        assert applied.log_offset >= self.applied.log_offset, "the store never goes back"
        note = _NOTE.pack(_NOTE_VERSION, *applied)
        chunk_rows, remaining = limits.WRITE_CHUNK_ROWS, sum(map(len, groups))
        orders = [written_order(group) for group in groups]
        keys = chain.from_iterable([keys for keys, _ in orders])
        values = chain.from_iterable([values for _, values in orders])
        # No value is empty, and this is several times faster than to look for None.
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
        """Keys and values in key order, beginning at `start`, at most `limit`."""
        return self._call(lambda: list(islice(chain.from_iterable(self._pieces(start)), limit)))

    def scan_prefix(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Keys and values of the keys that begin with `prefix`, in key order."""

        def collect() -> list[tuple[bytes, bytes]]:
            found = []
            for key, value in chain.from_iterable(self._pieces(prefix)):
                if not key.startswith(prefix):
                    break
                found.append((key, value))
            return found

        return self._call(collect)

    def snapshot(self, start: bytes = FIRST_KEY, end: bytes | None = None) -> KvSnapshot:
        """The rows of this moment from `start` to `end`; without an end it goes over all that was deleted behind."""
        return KvSnapshot(self.applied, self._call(self._pieces, start, end))

    @property
    def is_pressed(self) -> bool:
        """Whether compaction or flushing lags so far behind that new rows had better wait."""
        number = self._database.property_int_value
        return (
            (number("rocksdb.num-immutable-mem-table") or 0) >= limits.PRESSURE_WRITE_BUFFERS
            or (number("rocksdb.num-files-at-level0") or 0) >= limits.PRESSURE_FILES
            or bool(number("rocksdb.is-write-stopped"))
        )

    @property
    def file_bytes(self) -> int:
        """The size of its files."""
        return self._database.property_int_value("rocksdb.live-sst-files-size") or 0

    @property
    def stored_bytes(self) -> int:
        """The size of its files and of the rows that are not in files yet."""
        return self.file_bytes + (self._database.property_int_value("rocksdb.cur-size-all-mem-tables") or 0)

    def files(self) -> list[dict[str, Any]]:
        """What RocksDB tells of its files: level, start_key, end_key, size."""
        return self._call(self._database.live_files)

    def allow_compaction(self, allowed: bool) -> None:
        """Switch compaction on or off; what is under way goes on."""
        if allowed != self._is_compacting:
            self._call(self._database.set_options, {"disable_auto_compactions": "false" if allowed else "true"})
            self._is_compacting = allowed
            if not allowed:
                text, counted = "the store in %s is not compacted until there is more room", {"is_counted": True}
                _logger.warning(text, self.directory, extra=counted)

    def flush(self, *, wait: bool = False) -> None:
        """Write rows into files; without `wait` in RocksDB's own threads."""
        self._call(self._database.flush, wait)

    @property
    def is_flushing(self) -> bool:
        """Whether rows are on their way into files."""
        number = self._database.property_int_value
        return bool(number("rocksdb.mem-table-flush-pending") or number("rocksdb.num-running-flushes"))

    @property
    def identity(self) -> str:
        """A text that no other store has, nor this one after it was made anew.

        RocksDB's own identity is part of a snapshot, so a restored store would have the one of the lost store.
        """
        file = self.directory / _IDENTITY_NAME
        if not file.exists():
            file.write_text(str(uuid.uuid4()))
        return file.read_text()

    def link_files(self, directory: Path) -> None:
        """Write rows into files and link all files into a new directory; any thread. OSError changes nothing here."""
        try:
            Checkpoint(self._database).create_checkpoint(str(directory))
        except Exception as error:  # RocksDB's bindings raise plain Exception
            raise OSError(f"no checkpoint of the store in {self.directory}: {error}") from error

    def close(self) -> None:
        """Write everything into files and let them go."""
        if self.is_closed:
            return
        self.is_closed = True
        try:
            self._database.flush(True)
        finally:
            self._database.close()

    def abandon(self) -> None:
        """Close a store whose files are of no use any more: whether its last rows reach them does not matter."""
        if self.is_closed:
            return
        self.is_closed = True
        try:
            self._database.close()
        except Exception as error:  # RocksDB's bindings raise plain Exception
            _logger.info("the store in %s was not closed cleanly: %s", self.directory, error)

    def _pieces(self, from_key: bytes, end: bytes | None = None) -> Iterator[Rows]:
        first_key = max(from_key, FIRST_KEY)
        items: Any = self._database.items(from_key=first_key, read_opt=_up_to(end))
        return self._to_the_end(items, first_key, end)

    def _to_the_end(self, items: Iterator[tuple[bytes, bytes]], last_key: bytes, end: bytes | None) -> Iterator[Rows]:
        """Rows in pieces, small ones first: whoever wants few has few read, and whoever wants all gets them faster.

        The bindings end at a damaged block as if there were no more rows, so the end is looked at once more.
        """
        rows = 1
        while piece := list(islice(items, rows)):
            last_key = piece[-1][0]
            row_bytes = sum([len(value) for _, value in piece]) // len(piece) + 1
            yield piece
            rows = max(1, min(2 * rows, limits.MAX_READ_AHEAD_ROWS, limits.MAX_READ_AHEAD_BYTES // row_bytes))
        self._call(_check_end, self._database, last_key, end)

    def _call(self, operation: Callable[..., _Result], *arguments: Any) -> _Result:
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
    """Move a store that cannot be used, if there is one, out of the way; at most one is kept for whoever looks."""
    if directory.exists():
        aside = directory.with_name(directory.name + _DAMAGED_SUFFIX)
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(directory, aside)
    _marker(directory).unlink(missing_ok=True)


def put_in_place(made: Path, directory: Path) -> None:
    """Give a store that was made elsewhere, and is closed and synced, its name."""
    os.replace(made, directory)
    descriptor = os.open(directory.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(directory: Path) -> None:
    """Remove the store and everything around it; missing is fine."""
    shutil.rmtree(directory, ignore_errors=True)


def _is_damage(error: Exception) -> bool:
    """Whether files are broken or missing, rather than the disk full or a limit reached, which passes."""
    text = str(error)
    return "Corruption" in text or "No such file" in text


def _code(error: Exception) -> ErrorCode:
    """Of a store that cannot be opened: writers are told at once that the disk is full, all else they try again.

    Not for a store that fails later: rows that are in the changelog already must be sent again.
    """
    return ErrorCode.DISK_WRITE_LOCKED if "No space left" in str(error) else ErrorCode.KV_STORAGE_EXCEPTION


def _marker(directory: Path) -> Path:
    return directory.with_name(directory.name + _MARKER_SUFFIX)


def _mark_damaged(directory: Path) -> None:
    """Damaged rows may hide from the next opening: leave a mark that it cannot miss."""
    _logger.error("the store in %s is damaged and will be built anew from its changelog", directory)
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
    # Unless the options are given for the column family too, the bindings take those in the files for it, in which
    # there is no shared cache.
    families = {"default": store_options(resources)}
    return Rdict(str(directory), store_options(resources), column_families=families)


def read_note(note: bytes | None, directory: Path) -> Applied:
    """How far a store is; one without a note is empty. FlussError for a note of a later version."""
    if note is None:
        return Applied()
    refuse_newer(f"key-value store {directory}", note[0] if note else None, _NOTE_VERSION)
    if len(note) != _NOTE.size or note[0] != _NOTE_VERSION:
        raise StoreDamagedError(f"{directory}: the note about the applied offset is not readable: {note.hex()}")
    return Applied(*_NOTE.unpack(note)[1:])


def _up_to(end: bytes | None) -> ReadOptions | None:
    """For iterators that need not go on behind a key."""
    if end is None:
        return None
    options = ReadOptions()
    options.set_iterate_upper_bound(end)
    return options


def _check_end(database: Rdict, last_key: bytes, end: bytes | None) -> None:
    """Raise if what comes behind a key, and before the end, cannot be read."""
    behind = database.iter(_up_to(end))
    behind.seek(last_key)
    if behind.valid():
        behind.next()
    behind.status()
