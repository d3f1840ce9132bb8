"""One read of the logs for a fetch: everything that is available now, within the budgets, without waiting.

Runs in the event loop and never copies records: a plain fetch gets slices of mapped segment files, a projected one
slices of the selected columns.
"""

from __future__ import annotations

from fluss.codec.batches.log_batch import BatchHeader, CorruptBatch
from fluss.codec.batches.pruning import BatchFilter
from fluss.codec.buffers import ReadableBuffer
from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.server_payloads import BucketRecords, BytesLike, fetch_response_pieces
from fluss.server.catalog import TableEntry
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.storage.log.reader import DamagedLogError
from fluss.server.tablet.log.batch_selection import MIN_BUDGET_BYTES, BatchSelection, Keep, select_batches
from fluss.server.tablet.log.fetch_request import EARLIEST_OFFSET, QUIET_ERROR_CODES, BucketFetch, FetchPlan, TableFetch
from fluss.server.tablet.log.read_stops import NO_STOP
from fluss.server.tablet.remote.manifest import RemoteSegment
from fluss.server.tablet.remote.remote_log import RemoteLog
from fluss.server.tablet.remote.segment_selection import segments_from

# While a filter drops everything, a request continues in the next segments, up to this many.
MAX_FILTERED_SEGMENTS = 16


class FetchAnswer:
    """The result of one read of the logs: the answer so far, and how much it holds.

    `found_bytes` counts stored bytes (before projection and filter), which a long poll compares with its `min_bytes`.
    `is_final` is set if waiting cannot improve the answer.
    """

    __slots__ = ("found_bytes", "has_loud_error", "is_final", "local_buckets", "tables")

    def __init__(self) -> None:
        self.tables: list[tuple[int, list[BucketRecords]]] = []
        self.found_bytes = 0
        self.local_buckets = 0
        self.has_loud_error = False
        self.is_final = False

    def pieces(self) -> list[BytesLike]:
        """Return the encoded response, as pieces that are sent one after the other."""
        return fetch_response_pieces(self.tables)


def must_wait(plan: FetchPlan, answer: FetchAnswer) -> bool:
    """True if the fetch has to wait for more."""
    return (
        plan.max_wait_ms > 0
        and answer.found_bytes < plan.min_bytes
        and answer.local_buckets > 0
        and not answer.has_loud_error
        and not answer.is_final
    )


def earliest_offset(log: BucketLog, remote: RemoteLog) -> int:
    """The first offset that clients can read, from the local log or from remote storage."""
    remote_start = remote.manifest.start_offset
    return log.local_start_offset if remote_start is None else min(remote_start, log.local_start_offset)


def read_available(plan: FetchPlan) -> FetchAnswer:
    """Read what is available now for every bucket of the plan."""
    answer = FetchAnswer()
    remaining = plan.max_bytes
    is_first = True
    for table in plan.tables:
        results: list[BucketRecords] = []
        for item in table.buckets:
            error = table.error or item.error
            if error is None:
                try:
                    result, size = _read_bucket(plan, table, item, remaining, is_first, answer)
                    remaining -= size
                    is_first = is_first and size == 0
                except FlussError as failure:
                    error = failure
                except CorruptBatch as failure:
                    name = item.local.name if item.local is not None else str(item.bucket)
                    error = FlussError(f"{name}: {failure}", ErrorCode.CORRUPT_RECORD_EXCEPTION)
            if error is not None:
                result = _failed(item, error)
                answer.has_loud_error = answer.has_loud_error or error.error_code not in QUIET_ERROR_CODES
            results.append(result)
        answer.tables.append((table.table_id, results))
    return answer


def _read_bucket(
    plan: FetchPlan, table: TableFetch, item: BucketFetch, remaining: int, is_first: bool, answer: FetchAnswer
) -> tuple[BucketRecords, int]:
    """The result of one bucket and its size; FlussError if the bucket cannot be read."""
    assert item.local is not None
    log, remote = item.local.opened()
    offset = item.offset if item.offset != EARLIEST_OFFSET else earliest_offset(log, remote)
    high_watermark = log.high_watermark
    is_local = log.local_start_offset <= offset <= log.log_end_offset
    if plan.remote_first or not is_local:
        segments = segments_from(remote.manifest, offset)
        if segments:
            return _remote_result(item, remote, segments, offset, high_watermark), 0
    if not is_local:
        raise FlussError(
            f"{item.local.name}: offset {offset} is outside the log, which has offsets "
            f"{earliest_offset(log, remote)} to {log.log_end_offset}; continue at one of those",
            ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION,
        )
    answer.local_buckets += 1
    message = _message(item)
    message.high_watermark = high_watermark
    message.log_start_offset = 0
    stop = NO_STOP
    if table.batch_filter is not None:  # also if there is nothing to read yet, since the stop must be the end as of now
        stop = plan.stops.stop(item.bucket, offset, earliest_offset(log, remote), high_watermark)
    budget = min(remaining, item.max_bytes)
    if offset >= high_watermark or (budget < MIN_BUDGET_BYTES and not is_first):
        return BucketRecords(message, []), 0
    if not table.wants_whole_batches:
        found = log.read(offset, max(budget, 0), whole_first_batch=is_first)
        size = len(found.view)
        answer.found_bytes += size
        # Appends never add to an older segment, so waiting would not find more.
        answer.is_final = answer.is_final or found.segment_base_offset != log.segments[-1].base_offset
        return BucketRecords(message, [found.view] if size else []), size
    selection = _select(log, table, offset, high_watermark, budget, is_first, stop)
    answer.found_bytes += selection.scanned_bytes
    answer.is_final = answer.is_final or selection.budget_reached or selection.scanned_end < high_watermark
    if selection.filtered_end_offset is not None and table.batch_filter is not None:
        message.filtered_end_offset = selection.filtered_end_offset
        answer.is_final = True
    return BucketRecords(message, selection.pieces), selection.size_bytes


def _select(
    log: BucketLog,
    table: TableFetch,
    offset: int,
    high_watermark: int,
    budget: int,
    is_first: bool,
    stop: int,
) -> BatchSelection:
    """Select whole batches from `offset` on; crosses segment ends only while a filter drops everything."""
    assert table.entry is not None
    project = table.projection.project if table.projection is not None else None
    keep = None if table.batch_filter is None else _keep(table.batch_filter, table.entry, stop)
    selection = BatchSelection()
    for _ in range(MAX_FILTERED_SEGMENTS):
        select_batches(selection, log.read_batches(offset), budget, first_whole=is_first, project=project, keep=keep)
        stopped = selection.budget_reached or selection.scan_limit_reached or not selection.is_empty
        if stopped or selection.scanned_end >= high_watermark or selection.scanned_end <= offset:
            break
        offset = selection.scanned_end
    return selection


def _keep(batch_filter: BatchFilter, entry: TableEntry, stop: int) -> Keep:
    """A predicate: keep batches that may match the filter, and always the one with the last offset before `stop`."""

    def keep(buffer: ReadableBuffer, position: int, header: BatchHeader) -> bool:
        if header.base_offset < stop <= header.next_offset:
            return True
        schema = entry.schemas.get(header.schema_id)
        return schema is None or batch_filter.keeps(buffer, position, header, schema)

    return keep


def _message(item: BucketFetch) -> pb.PbFetchLogRespForBucket:
    message = pb.PbFetchLogRespForBucket(bucket_id=item.bucket.bucket_id)
    if item.bucket.partition_id is not None:
        message.partition_id = item.bucket.partition_id
    return message


def _failed(item: BucketFetch, error: FlussError) -> BucketRecords:
    message = _message(item)
    message.error_code = error.error_code
    message.error_message = error.message
    if isinstance(error, DamagedLogError):
        message.filtered_end_offset = error.next_offset  # for clients that are configured to skip unreadable batches
    return BucketRecords(message, None)


def _remote_result(
    item: BucketFetch, remote: RemoteLog, segments: tuple[RemoteSegment, ...], offset: int, high_watermark: int
) -> BucketRecords:
    message = _message(item)
    message.high_watermark = high_watermark
    message.log_start_offset = 0
    info = message.remote_log_fetch_info
    info.remote_log_tablet_dir = remote.record.tablet_directory
    if remote.manifest.partition_name is not None:
        info.partition_name = remote.manifest.partition_name
    for segment in segments:
        info.remote_log_segments.add(
            remote_log_segment_id=segment.segment_id,
            remote_log_start_offset=segment.start_offset,
            remote_log_end_offset=segment.end_offset,
            segment_size_in_bytes=segment.size_in_bytes,
            max_timestamp=segment.max_timestamp,
        )
    info.first_start_pos = remote.start_position(segments[0], offset)
    return BucketRecords(message, None)
