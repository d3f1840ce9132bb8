"""PUT_KV: upserts and deletes become changelog batches and rows. The way of a request: `write_requests`.

Everything up to the append happens in one step of the event loop, so puts of a bucket are merged in arrival order, each
with what the ones before it left. The order of the steps matters: a repeated batch is recognised before anything is
merged, and nothing is changed before the append was accepted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial

import pyarrow as pa

from fluss.codec.kv_batch import EmptyKeyError, KvRecords, check_kv_crc, decode_kv_batch, read_kv_header
from fluss.codec.log_batch import CorruptBatch
from fluss.codec.row_values import CorruptRowError, RowValueError
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.catalog import CatalogStore, TableEntry
from fluss.server.network.service import ProduceRequest, Reply, RequestContext
from fluss.server.storage.kv.kv_bucket import KvBucket
from fluss.server.storage.log.append import Append
from fluss.server.storage.log.committer import Committer
from fluss.server.tablet.access import TableAccess
from fluss.server.tablet.buckets import BucketRegistry
from fluss.server.tablet.kv.auto_increment import AutoIncrement
from fluss.server.tablet.kv.merge import Deletes, Outcome, RowMerger, merge_rows, merge_values
from fluss.server.tablet.kv.merge_columns import COLUMN_WISE_MIN_RECORDS, merge_partial_columns
from fluss.server.tablet.kv.merge_engines import FirstRowMerger, VersionedMerger, merger_for
from fluss.server.tablet.kv.merge_whole import merge_chosen_rows, merge_whole_rows
from fluss.server.tablet.kv.partial_update import PartialUpdateMerger
from fluss.server.tablet.kv.rules import KvRules, rules_of
from fluss.server.tablet.local_bucket import LocalBucket
from fluss.server.tablet.write_requests import BucketWrite, PendingWrite, WriteApi

OVERWRITE_MODE = 1
# Older clients do not know code 72.
FIRST_VERSION_WITH_BACKPRESSURE = 2


class KvWriter:
    """Merges records into buckets; also for rows that the server itself inserts."""

    def __init__(self, store: CatalogStore, clock: Callable[[], int]) -> None:
        self._numbers = AutoIncrement(store)
        self._clock = clock

    def rules(self, entry: TableEntry) -> KvRules:
        """The rules of a table."""
        return rules_of(entry)

    def forget(self, dropped: Collection[TableBucket]) -> None:
        """These buckets are gone."""
        self._numbers.forget(dropped)

    def close(self) -> None:
        """Nothing is put any more."""
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
        """Merge records and append their changelog; FlussError when nothing was changed."""
        kv, rules, header = local.opened_kv(), self.rules(entry), records.header
        if header.schema_id not in entry.schemas:
            text = f"{entry.path} has no schema {header.schema_id}; the newest is {entry.schema_id}"
            raise FlussError(text, ErrorCode.SCHEMA_NOT_EXIST)
        merger = merger_for(
            rules, target_columns, partial(self._numbers.next_number, rules, local.bucket), overwrite=overwrite
        )
        repeated = kv.log.check_sequence(header.writer_id, header.batch_sequence)
        if repeated is not None:
            return repeated
        kv.check_accepts()
        deletes = Deletes("ALLOW" if overwrite else rules.delete_behavior)
        try:
            outcome = _merge(kv, rules, records, merger, deletes)
            if rules.format.may_change_values:
                outcome = _as_replayed(rules, outcome)
            changelog = rules.format.changelog.encode(
                outcome.columns,
                outcome.change_types,
                writer_id=header.writer_id,
                batch_sequence=header.batch_sequence,
            )
        except (CorruptRowError, RowValueError, pa.ArrowException) as error:
            raise FlussError(f"{local.name}: {error}", ErrorCode.CORRUPT_RECORD_EXCEPTION) from error
        # Rows that are stored as they came have about the bytes of the batch.
        content_bytes = header.size if merger is None else None
        return kv.put(changelog, outcome.entries, outcome.row_delta, self._clock(), content_bytes)


def _merge(kv: KvBucket, rules: KvRules, records: KvRecords, merger: RowMerger | None, deletes: Deletes) -> Outcome:
    with_old = rules.has_full_image
    if merger is None and len(records) >= COLUMN_WISE_MIN_RECORDS:
        return merge_whole_rows(rules.format, records, kv.old_values, deletes, full_image=with_old)
    keys, values = records.key_list, records.value_list
    if (
        isinstance(merger, FirstRowMerger | VersionedMerger)
        and with_old
        and len(keys) >= COLUMN_WISE_MIN_RECORDS
        and not records.values.null_count
        and len(set(keys)) == len(keys)
    ):
        olds = kv.old_values(keys, records.keys)
        return merge_chosen_rows(rules.format, records, olds, merger.chosen(rules.format, olds, records.values))
    # Whoever keeps only the new rows of updates and writes rows whole need not know the old ones.
    knows_old = with_old or merger is not None
    if knows_old:
        wanted = list(dict.fromkeys(keys))
    else:
        wanted = list(dict.fromkeys([key for key, value in zip(keys, values, strict=True) if value is None]))
    current = dict(zip(wanted, kv.old_values(wanted), strict=True))
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


def _as_replayed(rules: KvRules, outcome: Outcome) -> Outcome:
    """The rows as a replay of their changelog makes them; RowValueError for keys that it would not find again.

    Clients may send digits beyond the precision of a column. What is stored has to be what is stored after a crash.
    """
    replayed, _ = rules.format.entries(outcome.columns, outcome.change_types)
    entries: dict[bytes, bytes | None] = {}
    for key, value in outcome.entries.items():
        entries[key] = None if value is None else replayed.get(key)
        if value is not None and entries[key] is None:
            raise RowValueError(
                f"the key {key.hex()} is not that of its row as the columns {', '.join(rules.format.key_columns)} hold "
                "it: digits beyond the precision of a TIME or TIMESTAMP, or too few bytes of a BINARY, make no key"
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
    ) -> None:
        super().__init__(registry, access, committer, clock)
        self._writer = writer

    def put_kv(self, context: RequestContext, request: ProduceRequest) -> Awaitable[Reply]:
        """Merge and append everything that can be; the answer comes when all results are there."""
        return self.handle(context, request)

    def _table_error(self, context: RequestContext, entry: TableEntry) -> FlussError | None:
        if not entry.has_primary_key:
            text = f"{entry.path} has no primary key: append to it"
            return FlussError(text, ErrorCode.NON_PRIMARY_KEY_TABLE_EXCEPTION)
        return version_error(context, self._writer.rules(entry))

    def _append(self, write: BucketWrite, pending: PendingWrite) -> None:
        message = pending.message
        kv = write.local.opened_kv()
        try:
            append = self._writer.put(
                write.local,
                write.entry,
                _records(write),
                message.target_columns,
                overwrite=message.agg_mode == OVERWRITE_MODE,
            )
        except FlussError as error:
            pressed = error.error_code == ErrorCode.STORAGE_BACKPRESSURE_EXCEPTION
            if pressed and pending.api_version < FIRST_VERSION_WITH_BACKPRESSURE:
                raise FlussError(error.message, ErrorCode.KV_STORAGE_EXCEPTION) from error
            raise
        pending.release_one()  # Rows were copied out; the changelog has its own bytes.
        pending.appended(write.position, append, append.next_offset, kv.check_usable)


def version_error(context: RequestContext, rules: KvRules) -> FlussError | None:
    """Why a request of an old client cannot be served: it makes other key bytes."""
    if context.api_version > 0 or not rules.needs_api_version_1:
        return None
    text = f"{rules.entry.path} has keys that clients of this API version encode differently; use a newer client"
    return FlussError(text, ErrorCode.UNSUPPORTED_VERSION)


def _records(write: BucketWrite) -> KvRecords:
    try:
        header = read_kv_header(write.records)
        if not check_kv_crc(write.records, header):
            raise CorruptBatch("wrong checksum of the key-value batch")
        return decode_kv_batch(write.records, header=header)
    except EmptyKeyError as error:
        # Not a damaged batch, which a client would send again and again.
        text = f"{write.local.name}: {error}: in a table with keys for Iceberg an empty text cannot be the primary key"
        raise FlussError(text, ErrorCode.UNKNOWN_SERVER_ERROR) from error
    except CorruptBatch as error:
        raise FlussError(f"{write.local.name}: {error}", ErrorCode.CORRUPT_RECORD_EXCEPTION) from error
