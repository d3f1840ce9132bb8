"""PUT_KV: upserts and deletes become changelog batches and rows. `write_requests` describes how requests are handled.

Everything up to the append happens in one step of the event loop, or, for a put of many records, while the other puts
to the bucket wait. So puts to a bucket are merged in order of arrival, each with the results of those before it. The
order of the steps matters: a repeated batch is recognised before anything is merged, and nothing is changed before the
append is accepted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from fluss.codec.batches.kv_batch import (
    EmptyKeyError,
    KvHeader,
    KvRecords,
    check_kv_crc,
    decode_kv_batch,
    decode_kv_parts,
    read_kv_header,
)
from fluss.codec.batches.log_batch import CorruptBatch
from fluss.codec.rows.values import CorruptRowError, RowValueError
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.catalog import CatalogStore, TableEntry
from fluss.server.runtime.handlers import ProduceRequest, Reply, RequestContext
from fluss.server.storage.kv.kv_bucket import KvBucket
from fluss.server.storage.log.append import Append
from fluss.server.storage.log.committer import Committer
from fluss.server.tablet.buckets.access import TableAccess
from fluss.server.tablet.buckets.kv_rules import KvRules, rules_of
from fluss.server.tablet.buckets.local_bucket import LocalBucket
from fluss.server.tablet.buckets.registry import BucketRegistry
from fluss.server.tablet.buckets.write_requests import BucketWrite, PendingWrite, WriteApi, refuse
from fluss.server.tablet.kv.merge.auto_increment import AutoIncrement
from fluss.server.tablet.kv.merge.columns import COLUMN_WISE_MIN_RECORDS, merge_partial_columns
from fluss.server.tablet.kv.merge.engines import FirstRowMerger, VersionedMerger, merger_for
from fluss.server.tablet.kv.merge.partial_update import PartialUpdateMerger
from fluss.server.tablet.kv.merge.put_batch import DeletePolicy, MergeResult, RowMerger, merge_rows, merge_values
from fluss.server.tablet.kv.merge.put_steps import MERGED_ROWS, WHOLE_ROWS, MergedParts, PartSizes
from fluss.server.tablet.kv.merge.whole_rows import OldValues, merge_chosen_rows, merge_whole_rows
from fluss.server.tablet.kv.put_queue import PutQueues

OVERWRITE_MODE = 1
# Older clients do not know code 72.
FIRST_VERSION_WITH_BACKPRESSURE = 2
ROW_ERRORS = (CorruptRowError, RowValueError, pa.ArrowException)


class KvWriter:
    """Merges records into buckets, including rows that the server itself inserts."""

    def __init__(self, store: CatalogStore, clock: Callable[[], int]) -> None:
        self._numbers = AutoIncrement(store)
        self._clock = clock

    def rules(self, entry: TableEntry) -> KvRules:
        """The rules by which puts to a primary-key table are merged and stored."""
        return rules_of(entry)

    def forget(self, dropped: Collection[TableBucket]) -> None:
        """Drop the reserved auto-increment numbers of dropped buckets."""
        self._numbers.forget(dropped)

    def close(self) -> None:
        """Return unused auto-increment numbers to the catalog. Call after the last put."""
        self._numbers.give_back()

    def put(
        self,
        local: LocalBucket,
        entry: TableEntry,
        records: KvRecords,
        target_columns: Sequence[int] = (),
        *,
        overwrite: bool = False,
    ) -> Append:
        """Merge records and append their changelog. If it raises FlussError, nothing was changed."""
        put = self._begin(local, entry, records.header, target_columns, overwrite=overwrite)
        if isinstance(put, Append):
            return put
        try:
            outcome = put.merge(put.kv.old_values, records)
            changelog = put.changelog(outcome)
        except ROW_ERRORS as error:
            raise _corrupt(local, error) from error
        return self._append(put, changelog, outcome)

    def put_in_steps(
        self,
        local: LocalBucket,
        entry: TableEntry,
        header: KvHeader,
        parts: Iterator[KvRecords],
        target_columns: Sequence[int] = (),
        *,
        overwrite: bool = False,
        check: Callable[[], None],
    ) -> Generator[None, None, Append]:
        """Merge the records of a large batch in parts; no other put to the bucket may run in between.

        `check` raises FlussError if the bucket accepts no more rows.
        """
        put = self._begin(local, entry, header, target_columns, overwrite=overwrite)
        if isinstance(put, Append):
            return put
        merged = MergedParts(local, put.kv)
        try:
            for records in parts:
                merged.add(put.merge(merged.old_values, records))
                yield
                merged.check()
            outcome = merged.joined()
            changelog = put.changelog(outcome)
        except ROW_ERRORS as error:
            raise _corrupt(local, error) from error
        yield
        merged.check()
        check()
        return self._append(put, changelog, outcome)

    def _begin(
        self, local: LocalBucket, entry: TableEntry, header: KvHeader, target_columns: Sequence[int], *, overwrite: bool
    ) -> _Put | Append:
        """Check a batch and prepare its merge; returns the earlier append if the batch is repeated."""
        kv, rules = local.opened_kv(), self.rules(entry)
        if header.schema_id not in entry.schemas:
            text = (
                f"unknown schema id {header.schema_id} of {entry.path}, whose newest is {entry.schema_id}; refresh the "
                "metadata"
            )
            raise FlussError(text, ErrorCode.SCHEMA_NOT_EXIST)
        merger = merger_for(
            rules, target_columns, partial(self._numbers.next_number, rules, local.bucket), overwrite=overwrite
        )
        repeated = kv.log.check_sequence(header.writer_id, header.batch_sequence)
        if repeated is not None:
            return repeated
        kv.check_accepts()
        return _Put(kv, rules, header, merger, DeletePolicy("ALLOW" if overwrite else rules.delete_behavior))

    def _append(self, put: _Put, changelog: bytearray, outcome: MergeResult) -> Append:
        # Rows that are stored as sent have about as many bytes as the batch.
        content_bytes = put.header.size if put.merger is None else None
        return put.kv.put(changelog, outcome.entries, outcome.row_delta, self._clock(), content_bytes)


class _Put(NamedTuple):
    """A batch that is being put, and the rules for merging it."""

    kv: KvBucket
    rules: KvRules
    header: KvHeader
    merger: RowMerger | None
    deletes: DeletePolicy

    def merge(self, old_values: OldValues, records: KvRecords) -> MergeResult:
        """Merge records; `old_values` looks up the previous values of the bucket."""
        outcome = _merge(old_values, self.rules, records, self.merger, self.deletes)
        return _as_replayed(self.rules, outcome) if self.rules.format.may_change_values else outcome

    def changelog(self, outcome: MergeResult) -> bytearray:
        """Encode the changelog rows of the put as one batch."""
        return self.rules.format.changelog.encode(
            outcome.columns,
            outcome.change_types,
            writer_id=self.header.writer_id,
            batch_sequence=self.header.batch_sequence,
        )


def _corrupt(local: LocalBucket, error: Exception) -> FlussError:
    return FlussError(f"{local.name}: {error}", ErrorCode.CORRUPT_RECORD_EXCEPTION)


def _merge(
    old_values: OldValues, rules: KvRules, records: KvRecords, merger: RowMerger | None, deletes: DeletePolicy
) -> MergeResult:
    with_old = rules.has_full_image
    if merger is None and len(records) >= COLUMN_WISE_MIN_RECORDS:
        return merge_whole_rows(rules.format, records, old_values, deletes, full_image=with_old)
    keys, values = records.key_list, records.value_list
    if (
        isinstance(merger, FirstRowMerger | VersionedMerger)
        and with_old
        and len(keys) >= COLUMN_WISE_MIN_RECORDS
        and not records.values.null_count
        and len(set(keys)) == len(keys)
    ):
        olds = old_values(keys, records.keys)
        return merge_chosen_rows(rules.format, records, olds, merger.chosen(rules.format, olds, records.values))
    # If only the new rows of updates are logged and rows are written whole, the old rows are not needed.
    knows_old = with_old or merger is not None
    if knows_old:
        wanted = list(dict.fromkeys(keys))
    else:
        wanted = list(dict.fromkeys([key for key, value in zip(keys, values, strict=True) if value is None]))
    current = dict(zip(wanted, old_values(wanted, None), strict=True))
    if merger is None:
        return merge_values(rules.format, keys, values, current, deletes, with_old=with_old, knows_old=knows_old)
    if (
        isinstance(merger, PartialUpdateMerger)
        and not merger.writes_only_keys
        and len(wanted) == len(keys) >= COLUMN_WISE_MIN_RECORDS
        and None not in values
    ):
        return merge_partial_columns(
            rules.format, keys, values, list(current.values()), merger.written, with_old=with_old
        )
    return merge_rows(rules.format, keys, values, current, deletes, merger, with_old=with_old)


def _as_replayed(rules: KvRules, outcome: MergeResult) -> MergeResult:
    """The rows as a replay of their changelog would produce them; RowValueError for keys that it would change.

    Clients may send digits beyond the precision of a column. The stored rows have to be the same after a crash.
    """
    replayed, _ = rules.format.entries(outcome.columns, outcome.change_types)
    entries: dict[bytes, bytes | None] = {}
    for key, value in outcome.entries.items():
        entries[key] = None if value is None else replayed.get(key)
        if value is not None and entries[key] is None:
            raise RowValueError(
                f"key {key.hex()} has a value that its columns {', '.join(rules.format.key_columns)} cannot hold; it "
                "must not have digits beyond the precision of a TIME or TIMESTAMP, nor too few bytes for a BINARY"
            )
    return outcome._replace(entries=entries)


class PutApi(WriteApi):
    """Handler of PUT_KV."""

    response_type = pb.PutKvResponse
    result_field = "log_end_offset"

    def __init__(
        self,
        registry: BucketRegistry,
        access: TableAccess,
        committer: Committer,
        clock: Callable[[], int],
        writer: KvWriter,
        queues: PutQueues,
    ) -> None:
        super().__init__(registry, access, committer, clock)
        self._writer = writer
        self._queues = queues

    def put_kv(self, context: RequestContext, request: ProduceRequest) -> Awaitable[Reply]:
        """Merge the records into all buckets that accept them; the answer is sent when all results are there."""
        return self.handle(context, request)

    def _table_error(self, context: RequestContext, entry: TableEntry) -> FlussError | None:
        if not entry.has_primary_key:
            text = f"{entry.path} has no primary key; append to it instead"
            return FlussError(text, ErrorCode.NON_PRIMARY_KEY_TABLE_EXCEPTION)
        return version_error(context, self._writer.rules(entry))

    def _append(self, write: BucketWrite, pending: PendingWrite) -> None:
        try:
            header = _checked_header(write.records)
            if self._queues.is_busy(write.local) or header.record_count > self._sizes(write, pending).at_once:
                self._queues.add(write.local, partial(self._put_in_its_turn, write, pending, header))
            else:
                self._put(write, pending, header)
        except Exception as error:
            raise _answer(error, write, pending) from error

    def _put(self, write: BucketWrite, pending: PendingWrite, header: KvHeader) -> None:
        message = pending.message
        append = self._writer.put(
            write.local,
            write.entry,
            decode_kv_batch(write.records, header=header),
            message.target_columns,
            overwrite=message.agg_mode == OVERWRITE_MODE,
        )
        self._accepted(write, pending, append)

    def _put_in_its_turn(self, write: BucketWrite, pending: PendingWrite, header: KvHeader) -> Iterator[None]:
        check = partial(self._registry.check_takes_rows, write.local)
        message = pending.message
        try:
            check()
            sizes = self._sizes(write, pending)
            if header.record_count <= sizes.at_once:
                self._put(write, pending, header)
                return
            append = yield from self._writer.put_in_steps(
                write.local,
                write.entry,
                header,
                decode_kv_parts(write.records, header, sizes.part),
                message.target_columns,
                overwrite=message.agg_mode == OVERWRITE_MODE,
                check=check,
            )
            self._accepted(write, pending, append)
        except Exception as error:
            refuse(write.local.name, write.position, pending, _answer(error, write, pending))

    def _sizes(self, write: BucketWrite, pending: PendingWrite) -> PartSizes:
        is_whole = not pending.message.target_columns and self._writer.rules(write.entry).takes_whole_rows
        return WHOLE_ROWS if is_whole else MERGED_ROWS

    def _accepted(self, write: BucketWrite, pending: PendingWrite, append: Append) -> None:
        kv = write.local.opened_kv()
        pending.release_one()  # The rows were copied; the changelog has its own bytes.
        pending.appended(write.position, append, append.next_offset, kv.check_usable)


def _answer(error: Exception, write: BucketWrite, pending: PendingWrite) -> Exception:
    """The error that is sent to the client for an exception during a put, with a code that the client can handle."""
    if isinstance(error, EmptyKeyError):
        # The code for a damaged batch would make a client retry forever.
        text = f"{write.local.name}: {error}; in a table with Iceberg keys the primary key must not be an empty string"
        return FlussError(text, ErrorCode.UNKNOWN_SERVER_ERROR)
    if isinstance(error, CorruptBatch):
        return _corrupt(write.local, error)
    is_pressed = isinstance(error, FlussError) and error.error_code == ErrorCode.STORAGE_BACKPRESSURE_EXCEPTION
    if is_pressed and pending.api_version < FIRST_VERSION_WITH_BACKPRESSURE:
        return FlussError(error.message, ErrorCode.KV_STORAGE_EXCEPTION)  # type: ignore[attr-defined]
    return error


def version_error(context: RequestContext, rules: KvRules) -> FlussError | None:
    """The error for an old client that encodes keys differently; None if the client can be served."""
    if context.api_version > 0 or not rules.needs_api_version_1:
        return None
    text = f"clients of API version 0 encode the keys of {rules.entry.path} differently; use a newer client"
    return FlussError(text, ErrorCode.UNSUPPORTED_VERSION)


def _checked_header(records: memoryview) -> KvHeader:
    header = read_kv_header(records)
    if not check_kv_crc(records, header):
        raise CorruptBatch("wrong checksum of the key-value batch")
    return header
