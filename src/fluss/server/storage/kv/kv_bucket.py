"""The key-value half of a primary-key bucket, on top of its log.

Theory. The log is the truth; the store is derived from it and holds the newest row of each key. A put becomes a
changelog batch, which is appended like any other, and a pending put beside it. When the log reports that the batch is
as durable as `log.flush` asks for, its rows go into the store *before* any other listener is called: this object is the
first listener of the high watermark. So readers of the log are never ahead of the store, and the next lookup finds an
acknowledged put. Very many rows go into the store in steps; until the last step everything else waits
(`log.held_commits`). Scans wait too, because between two steps the store matches no offset of the changelog
(`is_between_states`).

    accepted: changelog queued, rows in the pre-write buffer, seen by later puts only
    applied:  changelog durable, rows in the store, seen by every reader
    failed:   changelog not written, rows taken back

If the store itself fails, the bucket refuses puts and lookups (error 11) and is opened again after a while (see
`BucketRegistry.find`); the changelog has everything that was acknowledged, so nothing is lost. Owned by the loop
thread, except for `open`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.kv import limits
from fluss.server.storage.kv.disk_room import DiskRoom
from fluss.server.storage.kv.key_filter import KeyFilter
from fluss.server.storage.kv.limits import KvResources
from fluss.server.storage.kv.prewrite import PendingPut, PreWriteBuffer
from fluss.server.storage.kv.replay import Restore, open_store
from fluss.server.storage.kv.store import UNKNOWN_ROW_COUNT, Applied, KvStore, remove
from fluss.server.storage.kv.table_format import KvTableFormat
from fluss.server.storage.log.append import Append
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.storage.log.held_commits import HeldCommits, Storing

if TYPE_CHECKING:
    import pyarrow as pa

_logger = logging.getLogger(__name__)
STORE_DIRECTORY = "db"


def kv_directory(log_directory: Path | str) -> Path:
    """Return the directory of a bucket's store: `.../kv-3` for the log `.../log-3`."""
    log_path = Path(log_directory)
    return log_path.with_name("kv-" + log_path.name.removeprefix("log-"))


class KvBucket:
    """An open primary-key bucket: its log, its store, and the puts between the two."""

    def __init__(self, log: BucketLog, store: KvStore, resources: KvResources, *, counts_rows: bool = True) -> None:
        self.log = log
        self._counts_rows = counts_rows
        self._store = store
        self._dropped: FlussError | None = None
        self._pending = PreWriteBuffer(resources.recent_rows)
        # Puts to tables that do not count rows do not look up every key, so the filter would miss keys.
        is_empty = log.log_end_offset == store.applied_offset == 0
        self._new_keys = KeyFilter(resources.filter_memory) if counts_rows and is_empty else None
        self._room = DiskRoom(log.committer.files, log.directory, log.options.reserved_free_bytes, store, resources)
        self._unflushed = resources.unflushed
        self._unflushed_rows = 0
        self._unflushed_batches = 0
        # True while the store has some rows of a put, but not all of them nor the note: it matches no changelog offset.
        self.is_between_states = False
        # The number of puts that were taken back.
        self.failed_puts = 0
        log.held = HeldCommits(log, resources.long_work, Storing(self._takes_long, self._apply_steps))
        log.add_high_watermark_listener(self._apply_committed)

    @classmethod
    def open(
        cls, log: BucketLog, table_format: KvTableFormat, resources: KvResources, restore: Restore | None = None
    ) -> KvBucket:
        """Open the store beside an opened log and replay what it lacks. Blocks; the log must not be in use yet."""
        directory = kv_directory(log.directory) / STORE_DIRECTORY
        store = open_store(directory, log, table_format, resources, restore)
        return cls(log, store, resources, counts_rows=table_format.counts_rows)

    @property
    def failure(self) -> FlussError | None:
        """The reason why the rows cannot be used; None if they can."""
        return self._dropped or self._store.failure

    def check_usable(self) -> None:
        """Raise FlussError 11 if the store has failed."""
        if self.failure is not None:
            raise FlussError(self.failure.message, self.failure.error_code)

    @property
    def store(self) -> KvStore:
        """The applied rows; FlussError 11 if the store has failed."""
        self.check_usable()
        return self._store

    @property
    def applied_offset(self) -> int:
        """The changelog offset below which everything is in the store."""
        return self._store.applied_offset

    @property
    def row_count(self) -> int:
        """The number of rows in the store; UNKNOWN_ROW_COUNT for tables that do not count them."""
        return self._store.applied.row_count if self._counts_rows else UNKNOWN_ROW_COUNT

    def old_values(self, keys: list[bytes], array: pa.Array | None = None) -> list[bytes | None]:
        """The values that the next put will replace, pending ones included; None for keys without a value.

        Tables that count their rows look up every key here before they put it, to distinguish new keys from others.
        `array` may hold the same keys as a binary array; for many keys that is faster.
        """
        if self._new_keys is None or not self._new_keys.is_useful:
            return self._find(keys)
        if array is None:
            self._new_keys.note(keys)
            return self._find(keys)
        known = self._new_keys.note_and_find(array)
        if known is None:
            return self._find(keys)
        self.check_usable()
        places = np.flatnonzero(known).tolist()
        if len(places) == len(keys):
            return self._find(keys)
        values: list[bytes | None] = [None] * len(keys)
        for place, value in zip(places, self._find([keys[place] for place in places]), strict=True):
            values[place] = value
        return values

    def _find(self, keys: list[bytes]) -> list[bytes | None]:
        store = self.store
        values, unknown = self._pending.find(keys)
        if len(unknown) == len(keys):
            return store.multi_get(keys)
        if unknown:
            stored = store.multi_get([keys[position] for position in unknown])
            for position, value in zip(unknown, stored, strict=True):
                values[position] = value
        return values

    def check_accepts(self) -> None:
        """Raise FlussError 72 if rows come faster than they are stored, 70 for a full disk, 11 for a failed store."""
        store = self.store
        self._room.check_put(self._pending.size_bytes)
        if self._pending.size_bytes >= limits.MAX_PENDING_BYTES:
            text = (
                f"{self._pending.size_bytes} bytes of rows are waiting for the disk, the limit is "
                f"{limits.MAX_PENDING_BYTES}; retry later"
            )
            raise FlussError(text, ErrorCode.STORAGE_BACKPRESSURE_EXCEPTION)
        if store.is_pressed:
            self._room.steer_compaction()
            text = f"the compaction of the key-value store in {store.directory} has fallen behind; retry later"
            raise FlussError(text, ErrorCode.STORAGE_BACKPRESSURE_EXCEPTION)

    def put(
        self,
        changelog: bytearray,
        entries: dict[bytes, bytes | None],
        row_delta: int,
        now_ms: int,
        content_bytes: int | None = None,
    ) -> Append:
        """Append a changelog batch that results in `entries`, of about `content_bytes`.

        If it raises FlussError, nothing was accepted.
        """
        append = self.log.append(memoryview(changelog), now_ms, _nothing)
        assert not append.duplicate, "sequences are checked before rows are merged"
        pending = self._pending.add(append, entries, row_delta, content_bytes)
        append.add_durable(partial(self._settled, pending))
        return append

    def _settled(self, put: PendingPut, error: FlussError | None) -> None:
        if error is not None:
            self.failed_puts += 1
            self._pending.take_back(put)

    def _apply_committed(self) -> None:
        """Listener of the high watermark: write the rows of durable puts to the store."""
        for _ in self._apply_steps(self.log.high_watermark):
            pass

    def _takes_long(self, offset: int) -> bool:
        """True if the puts below an offset have so many rows that they are stored in steps."""
        return sum([len(put.entries) for put in self._pending.up_to(offset)]) > limits.STORED_AT_ONCE_ROWS

    def _apply_steps(self, offset: int) -> Iterator[None]:
        """Write the rows of puts below a durable offset to the store.

        They stay pending until the last one is written, so that puts that arrive meanwhile see them.
        """
        try:
            puts = self._pending.up_to(offset)
            if self.failure is not None or not puts:
                return
            row_count = self.row_count
            if self._counts_rows:
                row_count += sum([put.row_delta for put in puts])
            last = puts[-1].append
            assert last.segment is not None
            applied = Applied(last.next_offset, row_count, last.segment.base_offset, last.position + last.size)
            for _ in self._store.write_steps([put.entries for put in puts], applied):
                self.is_between_states = True
                yield
                if self.failure is not None:
                    return  # dropped in the meantime: a worker thread removes the files
            self._pending.take_up_to(offset)
            self._flush_if_due(puts)
        except Exception as error:
            # These rows are no longer in a buffer, so after any error the note must not move past them.
            self._pending.take_up_to(offset)
            text = f"cannot store rows in {self._store.directory}: {error!r}; the bucket is opened again, retry later"
            self._store.failure = self._store.failure or FlussError(text, ErrorCode.KV_STORAGE_EXCEPTION)
            _logger.error("%s", self._store.failure.message, exc_info=None if isinstance(error, FlussError) else error)
        finally:
            self.is_between_states = False

    def _flush_if_due(self, puts: list[PendingPut]) -> None:
        self._unflushed_batches += len(puts)
        self._unflushed_rows += sum([len(put.entries) for put in puts])
        if self._unflushed_rows >= limits.FLUSH_AFTER_ROWS or self._unflushed_batches >= limits.FLUSH_AFTER_BATCHES:
            self.flush()
        else:
            self._unflushed.wrote(self)

    def flush(self) -> None:
        """Start to flush all rows of the store to files; FlussError 11 if the store fails."""
        self._unflushed.flushed(self)
        self._unflushed_rows = self._unflushed_batches = 0
        self._room.steer_compaction()
        self._store.flush()

    @property
    def is_flushing(self) -> bool:
        """True while rows are being flushed to files."""
        return self._store.is_flushing

    def close(self) -> None:
        """Flush the store's rows to files and close it. The log was closed before, so nothing is pending. Blocks."""
        self.log.remove_high_watermark_listener(self._apply_committed)
        self._forget()
        failure = self._store.failure
        if failure is not None:
            # The frames of the error refer to iterators, which keep the files open: no store could be opened there.
            failure.__traceback__ = failure.__cause__ = failure.__context__ = None
        try:
            self._store.close()
        except Exception as error:  # RocksDB's bindings raise plain Exception
            _logger.warning(
                "the store of %s was not closed cleanly, the next start replays its log: %s", self.log.directory, error
            )

    def _forget(self) -> None:
        """Give back what this bucket uses of the memory that all buckets share."""
        self._pending.close()
        self._unflushed.closed(self)
        if self._new_keys is not None:
            self._new_keys.close()

    def abandon(self) -> Callable[[], None]:
        """Stop using the files of a dropped table. Returns a function that removes them, for a worker thread."""
        self.log.remove_high_watermark_listener(self._apply_committed)
        self._forget()
        self._dropped = FlussError(
            f"bucket {self.log.directory} was dropped; refresh the metadata",
            ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION,
        )
        store = self._store

        def remove_files() -> None:
            store.abandon()
            remove(store.directory.parent)

        return remove_files


def _nothing() -> None:
    """The release callback of a changelog batch: its bytes belong to the append, so there is nothing to release."""
