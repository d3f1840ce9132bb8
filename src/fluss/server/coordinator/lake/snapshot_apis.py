"""PREPARE_LAKE_TABLE_SNAPSHOT and COMMIT_LAKE_TABLE_SNAPSHOT: tiering services register their lake snapshots.

PREPARE writes the offsets of a round to a file, whose address the service stores in the lake snapshot; COMMIT registers
the snapshot with that file.

As in Apache Fluss, these requests are not fenced by epochs: the lake's own commit decides which service was first. But
a snapshot that is behind the newest one is refused, because readers would lose rows that are no longer in the log.

The registered offsets decide which rows tablets may delete, so they are validated: the caller may write the table, the
table has a lake, its buckets exist, and no offset is beyond the end of its log.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.interface.offsets import load_offsets
from fluss.model.paths import TableBucket
from fluss.model.properties import DATALAKE_ENABLED
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.apis.environment import Environment, table_path
from fluss.server.catalog import TableEntry
from fluss.server.catalog.lake_records import LakeSnapshotEntry, merged_document
from fluss.server.catalog.store import table_missing
from fluss.server.coordinator.lake.offsets_files import UNUSED_FILE_AGE_MS, OffsetsFiles
from fluss.server.runtime.handlers import RequestContext
from fluss.server.runtime.time_slices import TimeSlices
from fluss.server.storage.log.written_end import written_end

logger = logging.getLogger(__name__)


class LakeSnapshotApis:
    """Handlers for lake snapshots. Called on the event loop."""

    def __init__(self, environment: Environment, files: OffsetsFiles, registered: Callable[[TableEntry], None]) -> None:
        self._environment = environment
        self._records = environment.catalog.store.lake
        self._files = files
        self._registered = registered

    # PREPARE

    async def prepare(
        self, context: RequestContext, request: pb.PrepareLakeTableSnapshotRequest
    ) -> pb.PrepareLakeTableSnapshotResponse:
        """Write one offsets file per table; an error is reported for its own table only."""
        response = pb.PrepareLakeTableSnapshotResponse()
        time_slices = TimeSlices()
        for table in request.bucket_offsets:
            await time_slices.yield_if_over()
            result = response.prepare_lake_table_resp.add(table_id=table.table_id)
            ignore = request.ignore_previous_table_offsets
            await _into(result, self._prepare_table(context, table, ignore), "lake_table_offsets_path")
        return response

    async def _prepare_table(self, context: RequestContext, table: pb.PbTableOffsets, ignore_previous: bool) -> str:
        self._environment.catalog.refresh()
        path = table_path(table.table_path)
        self._environment.authorizer.check_table(context, path)
        entry = self._environment.catalog.table_by_id(table.table_id)
        if entry is None or entry.path != path:
            raise table_missing(path)
        _check_lake(entry)
        latest = self._records.latest(entry.table_id)
        known = load_offsets(latest.tiered_offsets)[1] if latest is not None and not ignore_previous else {}
        given = _offsets(entry, table.bucket_offsets)
        await self._check_ends(entry, given)
        return await self._write(entry, merged_document(entry.table_id, known, given))

    async def _write(self, entry: TableEntry, document: str) -> str:
        """Write a new offsets file. Its name is recorded first, so that it is removed if it is never registered."""
        name = self._files.new_name(entry)
        self._records.note_prepared(entry.table_id, name, self._environment.clock())
        await self._files.write(name, document)
        return name

    # COMMIT

    async def commit(
        self, context: RequestContext, request: pb.CommitLakeTableSnapshotRequest
    ) -> pb.CommitLakeTableSnapshotResponse:
        """Register snapshots with their files; clients older than 0.9 send only `tables_req`, with their offsets."""
        response = pb.CommitLakeTableSnapshotResponse()
        details = {self._table_id(context, table): table for table in request.tables_req}
        time_slices = TimeSlices()
        for metadata in request.lake_table_snapshot_metadata:
            await time_slices.yield_if_over()
            result = response.table_resp.add(table_id=metadata.table_id)
            await _into(result, self._commit_table(context, metadata, details.pop(metadata.table_id, None)))
        for table_id, legacy in details.items():
            await time_slices.yield_if_over()
            result = response.table_resp.add(table_id=table_id)
            await _into(result, self._commit_legacy(context, table_id, legacy))
        return response

    def _table_id(self, context: RequestContext, table: pb.PbLakeTableSnapshotInfo) -> int:
        if table.HasField("table_id"):
            return table.table_id
        self._environment.catalog.refresh()
        path = table_path(table.table_path)
        self._environment.authorizer.check_table(context, path)  # The answer contains the table's id.
        return self._environment.table(path).table_id

    async def _commit_table(
        self,
        context: RequestContext,
        metadata: pb.PbLakeTableSnapshotMetadata,
        details: pb.PbLakeTableSnapshotInfo | None,
    ) -> None:
        entry = self._table(context, metadata.table_id)
        tiered = await self._files.read(entry, metadata.tiered_bucket_offsets_file_path)
        readable_path: str | None = None
        readable: str | None = None
        if metadata.HasField("readable_bucket_offsets_file_path"):
            readable_path = metadata.readable_bucket_offsets_file_path
            same = readable_path == metadata.tiered_bucket_offsets_file_path
            readable = tiered if same else await self._files.read(entry, readable_path)
        snapshot = LakeSnapshotEntry(
            metadata.snapshot_id,
            metadata.tiered_bucket_offsets_file_path,
            readable_path,
            tiered,
            readable,
            self._environment.clock(),
        )
        earliest = metadata.earliest_snapshot_id_to_keep if metadata.HasField("earliest_snapshot_id_to_keep") else None
        await self._register(entry, snapshot, earliest, details)

    async def _commit_legacy(self, context: RequestContext, table_id: int, legacy: pb.PbLakeTableSnapshotInfo) -> None:
        entry = self._table(context, table_id)
        latest = self._records.latest(table_id)
        known = load_offsets(latest.tiered_offsets)[1] if latest is not None else {}
        given = _offsets(entry, legacy.buckets_req)
        await self._check_ends(entry, given)
        document = merged_document(table_id, known, given)
        name = await self._write(entry, document)
        snapshot = LakeSnapshotEntry(legacy.snapshot_id, name, name, document, document, self._environment.clock())
        await self._register(entry, snapshot, None, legacy)

    async def _register(
        self,
        entry: TableEntry,
        snapshot: LakeSnapshotEntry,
        earliest: int | None,
        details: pb.PbLakeTableSnapshotInfo | None,
    ) -> None:
        await self._check_ends(entry, load_offsets(snapshot.tiered_offsets)[1])
        unused = self._records.register(entry.table_id, snapshot, earliest)
        if unused is None:
            raise table_missing(entry.path)
        if details is not None:
            self._records.note_times(entry.table_id, _times(entry.table_id, details))
        logger.info("registered lake snapshot %d of table %s", snapshot.snapshot_id, entry.path)
        self._registered(entry)
        registered = {path for each in self._records.snapshots(entry.table_id) for path in each.paths}
        before_ms = self._environment.clock() - UNUSED_FILE_AGE_MS
        never_registered = set(self._records.prepared_before(entry.table_id, before_ms)) - registered
        if await self._files.remove_unused(entry, unused | never_registered) and never_registered:
            self._records.forget_prepared(never_registered)

    def _table(self, context: RequestContext, table_id: int) -> TableEntry:
        self._environment.catalog.refresh()
        self._environment.authorizer.check_known_table_id(context, table_id)
        entry = self._environment.catalog.table_by_id(table_id)
        if entry is None:
            raise FlussError(
                f"table id {table_id} does not exist; it may have been dropped, so give up the round",
                ErrorCode.TABLE_NOT_EXIST,
            )
        _check_lake(entry)
        return entry

    async def _check_ends(self, entry: TableEntry, offsets: Mapping[TableBucket, int]) -> None:
        """Refuse offsets beyond the end of a log: rows that are written later would count as tiered."""
        known = self._records.offsets(entry.table_id)
        directories = {
            bucket: str(self._environment.config.data_dir / self._environment.catalog.directory(bucket))
            for bucket, offset in offsets.items()
            if offset > known.get(bucket, 0) and self._exists(entry, bucket)
        }
        if not directories:
            return
        ends = await self._files.run(
            f"reading where the logs of table {entry.path} end",
            lambda: {bucket: written_end(directory) for bucket, directory in directories.items()},
        )
        for bucket, end in ends.items():
            if offsets[bucket] > end:
                raise FlussError(
                    f"offset {offsets[bucket]} of bucket {bucket.bucket_id} is beyond the end of its log, {end}: the "
                    f"lake cannot have rows of table {entry.path} that were never written; read the offsets again",
                    ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION,
                )

    def _exists(self, entry: TableEntry, bucket: TableBucket) -> bool:
        """True if the bucket exists, False if its partition was dropped, maybe during the round."""
        if bucket.bucket_id >= entry.bucket_count or (bucket.partition_id is None) == entry.is_partitioned:
            raise _no_bucket(entry, bucket)
        partition_id = bucket.partition_id
        return partition_id is None or self._environment.catalog.partition(entry.table_id, partition_id) is not None


async def _into(result: Any, work: Awaitable[str | None], field: str | None = None) -> None:
    """Await the work on one table and put its result or error into the table's entry in the answer."""
    try:
        value = await work
    except FlussError as error:
        result.error_code, result.error_message = error.error_code, error.message
    except OSError as error:
        result.error_code, result.error_message = ErrorCode.STORAGE_EXCEPTION, str(error)
    else:
        if field is not None:
            setattr(result, field, value)


def _check_lake(entry: TableEntry) -> None:
    """Refuse snapshots of a table without a lake: its log must not be removed because of them."""
    if not entry.property(DATALAKE_ENABLED):
        raise FlussError(
            f"table {entry.path} has no lake; set {DATALAKE_ENABLED} to true before tiering it",
            ErrorCode.LAKE_STORAGE_NOT_CONFIGURED_EXCEPTION,
        )


def _no_bucket(entry: TableEntry, bucket: TableBucket) -> FlussError:
    where = "without a partition id" if bucket.partition_id is None else f"in partition id {bucket.partition_id}"
    return FlussError(
        f"table {entry.path} has no bucket {bucket.bucket_id} {where}; refresh the metadata",
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )


def _offsets(
    entry: TableEntry, buckets: Iterable[pb.PbBucketOffset | pb.PbLakeTableOffsetForBucket]
) -> dict[TableBucket, int]:
    offsets: dict[TableBucket, int] = {}
    for bucket in buckets:
        if not 0 <= bucket.bucket_id < entry.bucket_count or bucket.HasField("partition_id") != entry.is_partitioned:
            raise _no_bucket(entry, _bucket(entry.table_id, bucket))
        if bucket.HasField("log_end_offset"):
            offsets[_bucket(entry.table_id, bucket)] = bucket.log_end_offset
    return offsets


def _times(table_id: int, details: pb.PbLakeTableSnapshotInfo) -> dict[TableBucket, int]:
    return {
        _bucket(table_id, bucket): bucket.max_timestamp
        for bucket in details.buckets_req
        if bucket.HasField("max_timestamp")
    }


def _bucket(table_id: int, bucket: pb.PbBucketOffset | pb.PbLakeTableOffsetForBucket) -> TableBucket:
    partition_id = bucket.partition_id if bucket.HasField("partition_id") else None
    return TableBucket(table_id, partition_id, bucket.bucket_id)
