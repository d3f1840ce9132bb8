"""The rows of a primary-key bucket exactly as of one offset of its changelog.

With SCAN_KV the server returns the bucket as of some offset L of its own choice. The rows at offset X are these,
corrected by the changes between the two:

    L > X   undo: the first change of each key from X on gives the old state: +I no row, -U and -D that row
    L < X   redo: the last change of each key before X gives the new state: +I and +U that row, -D no row

Both are a set of changed keys and some rows, sorted by key, which are merged into the scan, whose rows are in key
order. The result is in key order too, which makes it repeatable: if a scan breaks after some rows were delivered, a new
scan at a later offset, corrected to the same X, continues after the last delivered key. Without X, the first scan
decides it.

Undoing needs old images. A table with `table.changelog.image=WAL` has none: then only redoing works, and a scan that
breaks in the middle is an error. For a server without SCAN_KV (Apache Fluss 0.9), snapshots are read instead
(`snapshot_scan.py`). If there is none, the changelog is folded from its beginning up to X (`key_fold.py`).

A range of the keys can be read alone. Ranges of a bucket that are read separately, each with a scan of its
own, are consistent if all use the same X.

Memory: some answers of the scan, and the rows of keys that changed between X and L. One thread uses it, and blocks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.calls.bucket_offsets import EARLIEST, LATEST, list_bucket_offsets
from fluss.client.decode.log_rows import LogRows
from fluss.client.decode.scan_plan import ScanPlan
from fluss.client.net.metadata import ClientTable
from fluss.client.net.session import Session
from fluss.client.scan.log_range import LogRange
from fluss.client.state.bucket_scan import BucketScan
from fluss.client.state.key_fold import KeyFold
from fluss.client.state.key_ranges import ALL_KEYS, KeyRange
from fluss.client.state.kv_scan import RETRIED_CODES
from fluss.client.state.snapshot_plan import MAX_PLANS, PLAN_ANEW_CODES, latest_snapshots
from fluss.client.state.snapshot_scan import SnapshotScan
from fluss.client.state.table_keys import TableKeys
from fluss.codec.arrow.types import to_arrow_schema
from fluss.errors import ErrorCode, FlussError
from fluss.model import paths
from fluss.model.paths import ChangeType
from fluss.values.basic import TableBucket, public_bucket

if TYPE_CHECKING:
    from fluss.codec.rows.varint import Bools

FIRST_PAUSE_SECONDS = 0.05
LAST_PAUSE_SECONDS = 1.0
# There may be more ranges of a bucket than scans that a server allows at a time: wait for earlier ones to end.
BUSY_PATIENCE_SECONDS = 600.0
# Changes that are collected before duplicate keys are dropped.
MAX_UNMERGED_ROWS = 200_000


class Corrections(NamedTuple):
    """Keys whose rows differ between two offsets (sorted), and their rows at the wanted offset (sorted)."""

    changed: pa.Array
    keys: pa.Array
    rows: pa.RecordBatch


class BucketState:
    """Iterate over it once: record batches with all columns of the table, in key order if the server can scan.

    `offset` is the offset of the rows; None until the first batch, if none was given. With
    `snapshot_will_do`, the newest snapshot of a server without scans is returned as it is, without later changes.
    Columns that are not `wanted`, by position, may be all nulls.
    """

    def __init__(
        self,
        session: Session,
        table: ClientTable,
        bucket: paths.TableBucket,
        offset: int | None = None,
        *,
        patience_seconds: float | None = None,
        snapshot_will_do: bool = False,
        wanted: Iterable[int] | None = None,
        key_range: KeyRange = ALL_KEYS,
    ) -> None:
        self._session = session
        self._table = table
        self._snapshot_will_do = snapshot_will_do and offset is None
        self._bucket: TableBucket = public_bucket(bucket)
        self._keys = TableKeys(table)
        self._wanted = None if wanted is None else frozenset(wanted).union(self._keys.positions)
        self._schema = to_arrow_schema(table.schema)
        default_seconds = session.config.request_timeout_ms / 1000
        self._patience_seconds = default_seconds if patience_seconds is None else patience_seconds
        self._delivered: bytes | None = None
        self._key_range = key_range
        self.offset = offset

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        last_progress = time.monotonic()
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                for batch in self._attempt():
                    yield batch
                    last_progress, pause = time.monotonic(), FIRST_PAUSE_SECONDS
                return
            except FlussError as error:
                if error.error_code == ErrorCode.UNSUPPORTED_VERSION and self._key_range == ALL_KEYS:
                    break
                if error.error_code not in RETRIED_CODES or self._session.is_closed:
                    raise
                is_busy = error.error_code == ErrorCode.TOO_MANY_SCANNERS
                waits_for_others = is_busy and self._key_range != ALL_KEYS
                patience = BUSY_PATIENCE_SECONDS if waits_for_others else self._patience_seconds
                if time.monotonic() - last_progress >= patience:
                    raise
                if not is_busy:
                    self._session.io.call_soon(self._session.cluster.invalidate, self._bucket)
            time.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE_SECONDS)
        yield from self._without_scans()

    # ---- with SCAN_KV, or a snapshot ----

    def _attempt(self) -> Iterator[pa.RecordBatch]:
        return self._shown(
            BucketScan(self._session, self._table, self._bucket, wanted=self._wanted, key_range=self._key_range)
        )

    def _shown(self, scan: BucketScan | SnapshotScan) -> Iterator[pa.RecordBatch]:
        try:
            seen = scan.open()
            if self.offset is None:
                self.offset = seen
            corrections = self._corrections(self.offset, seen)
            for batch in scan:
                if batch.num_rows:
                    yield from self._corrected(batch, corrections)
            if corrections is not None:
                yield from self._rest(corrections)
        finally:
            scan.close()

    def _corrected(self, batch: pa.RecordBatch, corrections: Corrections | None) -> Iterator[pa.RecordBatch]:
        """A batch of the scan without delivered or changed rows, then the corrections up to its last key."""
        last = self._keys.last_of(batch)
        before = self._delivered
        if before is not None and last <= before:
            return
        if corrections is not None or before is not None:
            keys = self._keys.of(batch)
            mask = None if before is None else pc.greater(keys, before)
            if corrections is not None:
                unchanged = pc.invert(pc.is_in(keys, value_set=corrections.changed))
                mask = unchanged if mask is None else pc.and_(mask, unchanged)
            batch = batch.filter(mask)
        if batch.num_rows:
            yield batch
        if corrections is not None:
            yield from self._between(corrections, before, last)
        self._delivered = last

    def _rest(self, corrections: Corrections) -> Iterator[pa.RecordBatch]:
        yield from self._between(corrections, self._delivered, None)

    def _between(self, corrections: Corrections, after: bytes | None, last: bytes | None) -> Iterator[pa.RecordBatch]:
        keys = corrections.keys
        start = 0 if after is None else pc.sum(pc.less_equal(keys, after)).as_py() or 0
        end = len(keys) if last is None else pc.sum(pc.less_equal(keys, last)).as_py() or 0
        if end > start:
            yield corrections.rows.slice(start, end - start)

    def _corrections(self, wanted: int, seen: int) -> Corrections | None:
        if wanted == seen:
            return None
        start, stop = min(wanted, seen), max(wanted, seen)
        kept = _Kept(self._keys, self._schema, self._key_range, undo=seen > wanted)
        with LogRange(
            self._session,
            self._table,
            ScanPlan(),
            {self._bucket: (start, stop)},
            patience_seconds=self._patience_seconds,
        ) as changes:
            for rows in changes:
                if seen > wanted:
                    self._check_images(rows)
                kept.add(rows)
        return kept.corrections()

    def _check_images(self, rows: LogRows) -> None:
        """An update without the row that it replaced cannot be undone."""
        if rows.change_types is None:
            return
        types = np.frombuffer(rows.change_types, np.uint8)
        updates = np.flatnonzero(types == ChangeType.UPDATE_AFTER)
        before = np.flatnonzero(types == ChangeType.UPDATE_BEFORE)
        if len(updates) and (len(before) != len(updates) or (before + 1 != updates).any()):
            raise FlussError(
                f"{self._bucket} of {self._table.path} changed while it was read, and its changelog has no old rows "
                f"(table.changelog.image=WAL), so offset {self.offset} cannot be reconstructed: read it again",
                ErrorCode.CLIENT_ERROR,
            )

    # ---- without SCAN_KV ----

    def _without_scans(self) -> Iterator[pa.RecordBatch]:
        earliest, latest = self._session.run(self._ends())
        wanted = self.offset = latest if self.offset is None else self.offset
        trouble: FlussError | None = None
        for _ in range(MAX_PLANS):
            snapshot = self._session.run(latest_snapshots(self._session.cluster, self._table, [self._bucket]))
            if not snapshot:
                break
            if self._snapshot_will_do and self._delivered is None:
                self.offset = snapshot[self._bucket].log_offset
            try:
                scan = SnapshotScan(self._session, self._table, self._bucket, snapshot[self._bucket])
                yield from self._shown(scan)
                return
            except FlussError as error:
                if error.error_code not in PLAN_ANEW_CODES:
                    raise
                trouble = error
        if trouble is not None and self._delivered is not None:
            raise trouble  # The rest cannot come from the changelog, which is not in the order of keys.
        self.offset = wanted
        yield from self._folded(earliest, wanted)

    def _folded(self, earliest: int, wanted: int) -> Iterator[pa.RecordBatch]:
        if earliest > 0:
            raise FlussError(
                f"the server cannot scan primary-key tables, and the changelog of {self._bucket} of {self._table.path} "
                f"begins at offset {earliest}: older changes have expired, so the table cannot be read as a whole",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        yield from fold_range(
            self._session, self._table, self._bucket, 0, wanted, patience_seconds=self._patience_seconds
        )

    async def _ends(self) -> tuple[int, int]:
        cluster, path = self._session.cluster, self._table.path
        earliest = await list_bucket_offsets(cluster, path, [self._bucket], EARLIEST)
        latest = await list_bucket_offsets(cluster, path, [self._bucket], LATEST)
        return earliest[self._bucket], latest[self._bucket]


def fold_range(
    session: Session,
    table: ClientTable,
    bucket: paths.TableBucket,
    start: int,
    stop: int,
    *,
    timestamps: tuple[int | None, int | None] = (None, None),
    patience_seconds: float | None = None,
) -> Iterator[pa.RecordBatch]:
    """The last row of each key that changed in `[start, stop)` and was not deleted at its end.

    `timestamps` narrows it to changes that were committed from the first time on and before the second one.
    """
    since, until = timestamps
    fold = KeyFold(table)
    try:
        with LogRange(session, table, ScanPlan(), {bucket: (start, stop)}, patience_seconds=patience_seconds) as rows:
            for changes in rows:
                if (since is None or changes.timestamp >= since) and (until is None or changes.timestamp < until):
                    fold.add(changes)
        yield from fold.batches()
    finally:
        fold.close()


class _Kept:
    """Collects the first (undo) or the last (redo) change of each key in a range."""

    def __init__(self, keys: TableKeys, schema: pa.Schema, key_range: KeyRange, *, undo: bool) -> None:
        self._keys = keys
        self._schema = schema
        self._key_range = key_range
        self._undo = undo
        # Undo needs the old image of an update and ignores the new one; redo is the reverse.
        self._ignored = ChangeType.UPDATE_AFTER if undo else ChangeType.UPDATE_BEFORE
        self._absent = ChangeType.INSERT if undo else ChangeType.DELETE
        self._batches: list[pa.RecordBatch] = []
        self._gone: list[Bools] = []
        self._unmerged = 0

    def add(self, rows: LogRows) -> None:
        """Add the next changes."""
        if rows.change_types is None:
            raise FlussError("a changelog without change types cannot be undone", ErrorCode.CORRUPT_RECORD_EXCEPTION)
        types = np.frombuffer(rows.change_types, np.uint8)
        kept = np.flatnonzero(types != self._ignored)
        self._batches.append(rows.rows.take(pa.array(kept)))
        self._gone.append(types[kept] == self._absent)
        self._unmerged += len(kept)
        if self._unmerged >= MAX_UNMERGED_ROWS:
            self._merge()

    def _merge(self) -> pa.Array:
        batches = pa.Table.from_batches(self._batches, self._schema).combine_chunks().to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], self._schema)
        gone = np.concatenate([np.zeros(0, np.bool_), *self._gone])
        keys = self._keys.of(batch)
        if self._key_range != ALL_KEYS:
            inside = self._key_range.contains(keys)
            batch, keys, gone = batch.filter(inside), keys.filter(inside), gone[np.asarray(inside)]
        encoded = keys.dictionary_encode()
        places = np.arange(batch.num_rows)
        chosen = np.zeros(len(encoded.dictionary), np.int64)
        if self._undo:  # written last to first, so that the first of equal keys stays
            chosen[np.asarray(encoded.indices)[::-1]] = places[::-1]
        else:
            chosen[np.asarray(encoded.indices)] = places
        chosen.sort()
        picked = pa.array(chosen)
        self._batches, self._gone, self._unmerged = [batch.take(picked)], [gone[chosen]], 0
        return keys.take(picked)

    def corrections(self) -> Corrections:
        """Return all corrections."""
        keys = self._merge()
        order = pc.array_sort_indices(keys)
        keys = keys.take(order)
        there = pa.array(~self._gone[0]).take(order)
        return Corrections(keys, keys.filter(there), self._batches[0].take(order).filter(there))
