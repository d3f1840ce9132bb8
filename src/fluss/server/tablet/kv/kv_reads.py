"""The common part of all reads of primary-key tables: finding the store of a bucket, and reading its rows in steps.

Reads see only the store, that is, rows that are durable in the changelog and applied. A write is acknowledged after
that, so a client that got an acknowledgement finds the row.

A `RowCursor` reads a bucket as it was at one moment, however long that takes. It keeps RocksDB's files in use and would
prevent the store from being closed, so it must be closed; it closes itself when the bucket is no longer open. Rows are
read in steps of at most `STEP_ROWS` rows or `STEP_BYTES` bytes, between which the event loop runs. Everything runs in
the loop's thread.
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

# A step takes a few milliseconds of the event loop.
STEP_ROWS = 4_000
STEP_BYTES = 4 * 1024 * 1024
# An answer is one frame that is kept in memory until it is sent, even to a client that reads slowly.
MAX_ANSWER_BYTES = 128 * 1024 * 1024


def too_large(what: str) -> FlussError:
    """The error for an answer that would not fit into a frame."""
    return FlussError(
        f"{what} have more than {MAX_ANSWER_BYTES} bytes; request fewer at a time", ErrorCode.RECORD_TOO_LARGE_EXCEPTION
    )


class _Change:
    """Waits for the next change of a bucket: new rows are visible, or it is gone."""

    def __init__(self, local: LocalBucket) -> None:
        self._local = local
        self.came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        local.waiters[self] = None

    def bucket_changed(self) -> None:
        self._local.waiters.pop(self, None)
        if not self.came.done():
            self.came.set_result(None)


class KvReads:
    """Finds the stores of buckets for requests, and checks access to their tables."""

    def __init__(self, registry: BucketRegistry, access: TableAccess) -> None:
        self.registry = registry
        self.access = access

    def check_table(self, context: RequestContext, table_id: int, *, checks_version: bool = True) -> None:
        """Raise errors that apply to all buckets of a table. `store` raises the error for an unknown table."""
        entry = self.registry.table(table_id)
        if entry is None:
            return
        error = self.access.error(context, entry.path)
        if error is not None:
            raise error
        if not entry.has_primary_key:
            raise FlussError(
                f"{entry.path} has no primary key, so its rows cannot be looked up or scanned by key; scan its log",
                ErrorCode.NON_PRIMARY_KEY_TABLE_EXCEPTION,
            )
        if checks_version:
            version_problem = version_error(context, KvRules(entry))
            if version_problem is not None:
                raise version_problem

    def store(self, bucket: TableBucket) -> tuple[LocalBucket, KvStore]:
        """The bucket and its store; FlussError if it is not open, not led here, or has no primary key."""
        local = self.registry.find(bucket)
        return local, local.opened_kv().store

    async def whole_store(self, bucket: TableBucket) -> tuple[LocalBucket, KvStore]:
        """The bucket and its store, as soon as the store matches a changelog offset; for scans, which report it.

        Rows of a large put are stored in steps; scans wait for the last step.
        """
        while True:
            local, store = self.store(bucket)
            if not local.opened_kv().is_between_states:
                return local, store
            change = _Change(local)
            await change.came

    async def settled(self, buckets: Sequence[TableBucket]) -> None:
        """Wait until none of the buckets is being opened; nearly always this does not wait at all."""
        for bucket in buckets:
            try:
                local = self.registry.find(bucket)
            except FlussError:
                continue  # `store` raises it again.
            if local.state is BucketState.OPENING:
                await wait_until_settled([local])


def end_of_prefix(prefix: bytes) -> bytes | None:
    """The first key after all keys that begin with a prefix; None if there can be none.

    >>> end_of_prefix(b"ab"), end_of_prefix(b"a" + bytes([255])), end_of_prefix(bytes([255]))
    (b'ac', b'b', None)
    """
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


class RowCursor:
    """The values of a bucket in key order, as of the creation of the cursor."""

    __slots__ = ("_ahead", "_end_key", "_local", "_lost", "_row_lists", "applied_offset")

    def __init__(
        self, local: LocalBucket, store: KvStore, first_key: bytes = FIRST_KEY, end_key: bytes | None = None
    ) -> None:
        """Begin at `first_key` and end before `end_key`."""
        self._local = local
        self._end_key = end_key
        view = store.view(first_key, end_key)
        # The changelog offset that matches this view of the rows.
        self.applied_offset = view.applied.log_offset
        self._row_lists: Iterator[Rows] | None = view.row_lists
        # The next rows, read ahead so that it is known whether there are any.
        self._ahead: Rows = []
        # The reason why the rows cannot be read to the end: the bucket was dropped, moved, or its store has failed.
        self._lost: FlussError | None = None
        local.waiters[self] = None
        try:
            self._read_ahead()
        except FlussError:
            self.close()
            raise

    @property
    def has_more(self) -> bool:
        """True if there is another row."""
        return bool(self._ahead)

    @property
    def is_lost(self) -> bool:
        """True if the bucket was closed before the end of the rows."""
        return self._lost is not None

    def take(self, max_rows: int, max_bytes: int) -> list[bytes]:
        """The next values up to one of the limits, at least one if there is one; raises if the bucket is gone.

        The row that reaches `max_bytes` is the last one.
        """
        self.check_open()
        values: list[bytes] = []
        size = 0
        while self._ahead and len(values) < max_rows and size < max_bytes:
            found = [value for _, value in self._ahead[: max_rows - len(values)]]
            sizes = list(accumulate(map(value_record_bytes, found), initial=size))
            count = min(bisect_left(sizes, max_bytes), len(found))
            values += found[:count]
            size = sizes[count]
            del self._ahead[:count]
            if not self._ahead:
                self._read_ahead()
        return values

    def take_keys(self, max_rows: int) -> list[bytes]:
        """The keys of the next rows, at least one if there is one; raises if the bucket is gone."""
        self.check_open()
        keys: list[bytes] = []
        while self._ahead and len(keys) < max_rows:
            keys += [key for key, _ in self._ahead]
            self._read_ahead()
        return keys

    def _read_ahead(self) -> None:
        """Read the next rows before the end key; close the cursor if there are none."""
        ahead = [] if self._row_lists is None else next(self._row_lists, [])
        if ahead and self._end_key is not None and ahead[-1][0] >= self._end_key:
            # Keys are in order: later rows are all behind the end key.
            ahead = [item for item in ahead if item[0] < self._end_key]
            self._row_lists = None
        if not ahead:
            self.close()
        self._ahead = ahead

    def check_open(self) -> None:
        """Raise an error if the bucket was closed."""
        if self._lost is not None:
            raise self._lost

    async def steps(self, max_rows: int | None, max_bytes: int) -> AsyncIterator[list[bytes]]:
        """Yield values in steps, between which the loop runs, until a limit is reached or there are no more rows."""
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
        """Close the cursor if the bucket is no longer open. Called by the bucket on every change."""
        if self._local.state is not BucketState.OPEN:
            lost = self._local.error
            text = f"{self._local.name} was closed; retry later"
            self._lost = lost or FlussError(text, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.close()

    def close(self) -> None:
        """Release the view of the rows; may be called repeatedly."""
        self._row_lists = None
        self._ahead = []
        self._local.waiters.pop(self, None)
