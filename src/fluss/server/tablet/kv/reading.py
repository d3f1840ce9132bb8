"""What all reads of primary-key tables share: finding the store of a bucket, and going through its rows in steps.

Reads see the store only, that is what is durable in the changelog and applied; a write is acknowledged after that, so
whoever got an acknowledgement finds the row.

A `RowCursor` reads a bucket as it was at one moment, however long that takes. It keeps RocksDB's files in use and
would keep the store from being closed, so it must be closed, and it closes itself when the bucket is open no more. Rows
are taken in steps of at most `STEP_ROWS` rows or `STEP_BYTES` bytes, with the event loop between them. Everything runs
in the loop's thread.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import accumulate

from fluss.codec.batches.record_bounds import LENGTH_BYTES
from fluss.codec.batches.value_batch import value_record_bytes
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.server.runtime.handlers import RequestContext
from fluss.server.storage.kv.store import FIRST_KEY, KvStore, Rows
from fluss.server.tablet.buckets.access import TableAccess
from fluss.server.tablet.buckets.kv_rules import KvRules
from fluss.server.tablet.buckets.local_bucket import BucketState, LocalBucket
from fluss.server.tablet.buckets.registry import BucketRegistry, wait_until_settled
from fluss.server.tablet.kv.put import version_error

# A few milliseconds of the event loop.
STEP_ROWS = 4_000
STEP_BYTES = 4 * 1024 * 1024
# An answer is one frame that is held whole, also for a peer that reads slowly.
MAX_ANSWER_BYTES = 128 * 1024 * 1024


def too_large(what: str) -> FlussError:
    """The error of an answer that would not fit a frame."""
    return FlussError(
        f"{what} are more than {MAX_ANSWER_BYTES} bytes; ask for fewer at a time", ErrorCode.RECORD_TOO_LARGE_EXCEPTION
    )


class _Change:
    """Waits for the next change of a bucket: rows are shown, or it is gone."""

    def __init__(self, local: LocalBucket) -> None:
        self._local = local
        self.came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        local.waiters[self] = None

    def bucket_changed(self) -> None:
        self._local.waiters.pop(self, None)
        if not self.came.done():
            self.came.set_result(None)


class KvReads:
    """Finds stores for requests."""

    def __init__(self, registry: BucketRegistry, access: TableAccess) -> None:
        self.registry = registry
        self.access = access

    def check_table(self, context: RequestContext, table_id: int, *, checks_version: bool = True) -> None:
        """Raise what is wrong with all buckets alike. A table that does not exist is found out by `store`."""
        entry = self.registry.table(table_id)
        if entry is None:
            return
        error = self.access.error(context, entry.path)
        if error is not None:
            raise error
        if not entry.has_primary_key:
            raise FlussError(
                f"{entry.path} has no primary key: its rows cannot be looked up or scanned by key",
                ErrorCode.NON_PRIMARY_KEY_TABLE_EXCEPTION,
            )
        if checks_version:
            version_problem = version_error(context, KvRules(entry))
            if version_problem is not None:
                raise version_problem

    def store(self, bucket: TableBucket) -> tuple[LocalBucket, KvStore]:
        """The bucket and its store; FlussError when it is not open, not ours, or of a table without keys."""
        local = self.registry.find(bucket)
        return local, local.opened_kv().store

    async def whole_store(self, bucket: TableBucket) -> tuple[LocalBucket, KvStore]:
        """The same, of a store that belongs to an offset of the changelog, for scans: they tell that offset.

        Rows of a large put go into the store in steps; whoever wants all rows waits for the last step.
        """
        while True:
            local, store = self.store(bucket)
            if not local.opened_kv().is_between_states:
                return local, store
            change = _Change(local)
            await change.came

    async def settled(self, buckets: Sequence[TableBucket]) -> None:
        """Wait until none of the buckets is being opened; no wait at all in nearly every case."""
        for bucket in buckets:
            try:
                local = self.registry.find(bucket)
            except FlussError:
                continue  # `store` will say it.
            if local.state is BucketState.OPENING:
                await wait_until_settled([local])


def end_of_prefix(prefix: bytes) -> bytes | None:
    """The first key behind all that begin with a prefix; None if there can be none.

    >>> end_of_prefix(b"ab"), end_of_prefix(b"a" + bytes([255])), end_of_prefix(bytes([255]))
    (b'ac', b'b', None)
    """
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


class RowCursor:
    """Values of a bucket in key order, as of now. See the module's text."""

    __slots__ = ("_ahead", "_end_key", "_local", "_lost", "_pieces", "applied_offset")

    def __init__(
        self, local: LocalBucket, store: KvStore, first_key: bytes = FIRST_KEY, end_key: bytes | None = None
    ) -> None:
        """From the first key on, up to, without, the end key."""
        self._local = local
        self._end_key = end_key
        snapshot = store.snapshot(first_key, end_key)
        # The changelog offset that belongs to this view of the rows.
        self.applied_offset = snapshot.applied.log_offset
        self._pieces: Iterator[Rows] | None = snapshot.pieces
        # The rows that come next, read already: so it is known whether there are any.
        self._ahead: Rows = []
        # Why the rows cannot be read to their end: the bucket was dropped, moved, or its store has failed.
        self._lost: FlussError | None = None
        local.waiters[self] = None
        try:
            self._read_ahead()
        except FlussError:
            self.close()
            raise

    @property
    def has_more(self) -> bool:
        """Whether another row is there."""
        return bool(self._ahead)

    @property
    def is_lost(self) -> bool:
        """Whether the bucket went away before the end."""
        return self._lost is not None

    def take(self, max_rows: int, max_bytes: int) -> list[bytes]:
        """The next values up to one of the limits, at least one if there is one; raises when the bucket is gone.

        The row that reaches `max_bytes` is the last one.
        """
        self.check_open()
        values: list[bytes] = []
        size = 0
        while self._ahead and len(values) < max_rows and size < max_bytes:
            piece = [value for _, value in self._ahead[: max_rows - len(values)]]
            sizes = list(accumulate(map(value_record_bytes, piece), initial=size))
            count = min(bisect_left(sizes, max_bytes), len(piece))
            values += piece[:count]
            size = sizes[count]
            del self._ahead[:count]
            if not self._ahead:
                self._read_ahead()
        return values

    def take_keys(self, max_rows: int) -> list[bytes]:
        """The keys of the next rows, at least one if there is one; raises when the bucket is gone."""
        self.check_open()
        keys: list[bytes] = []
        while self._ahead and len(keys) < max_rows:
            keys += [key for key, _ in self._ahead]
            self._read_ahead()
        return keys

    def _read_ahead(self) -> None:
        """The next rows before the end key; without any, the view is let go."""
        ahead = [] if self._pieces is None else next(self._pieces, [])
        if ahead and self._end_key is not None and ahead[-1][0] >= self._end_key:
            # Keys are in order: nothing behind these matters.
            ahead = [item for item in ahead if item[0] < self._end_key]
            self._pieces = None
        if not ahead:
            self.close()
        self._ahead = ahead

    def check_open(self) -> None:
        """Raise the error of a bucket that went away."""
        if self._lost is not None:
            raise self._lost

    async def steps(self, max_rows: int | None, max_bytes: int) -> AsyncIterator[list[bytes]]:
        """Values in steps; the loop runs between them. Ends when a limit is reached or there is nothing more."""
        rows = bytes_taken = 0
        while self.has_more and bytes_taken < max_bytes and (max_rows is None or rows < max_rows):
            if rows:
                await asyncio.sleep(0)
            wanted = STEP_ROWS if max_rows is None else min(STEP_ROWS, max_rows - rows)
            values = self.take(wanted, min(STEP_BYTES, max_bytes - bytes_taken))
            rows += len(values)
            bytes_taken += LENGTH_BYTES * len(values) + sum(map(len, values))
            yield values
        self.check_open()

    def bucket_changed(self) -> None:
        """Called by the bucket on every change; only its end matters here, also if it is opened again later."""
        if self._local.state is not BucketState.OPEN:
            lost = self._local.error
            self._lost = lost or FlussError(f"{self._local.name} was closed", ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.close()

    def close(self) -> None:
        """Let the view go; may be called again."""
        self._pieces = None
        self._ahead = []
        self._local.waiters.pop(self, None)
