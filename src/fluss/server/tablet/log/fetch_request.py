"""A FETCH_LOG request, checked and resolved once, so that repeated reads of the logs need not parse it again.

A `FetchPlan` is created when the request arrives and lives as long as the fetch waits. Errors of a table or bucket are
part of the plan: they are the answer for that bucket and do not affect the others.
"""

from __future__ import annotations

from fluss.codec.batches.pruning import BatchFilter
from fluss.codec.filters.predicate import read_predicate
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.model.properties import LOG_FORMAT
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.catalog import TableEntry
from fluss.server.tablet.buckets.local_bucket import LocalBucket
from fluss.server.tablet.buckets.requested_buckets import bucket_of
from fluss.server.tablet.log.projection_cache import ARROW_FORMAT, ProjectionCache, TableProjection
from fluss.server.tablet.log.read_stops import ConnectionStops

EARLIEST_OFFSET = -2
CLIENT_FOLLOWER_ID = -1
REMOTE_FIRST = 1
DEFAULT_WAIT_MS = 100
# A fetch that asks for more waits only this long: an answer without records is always correct.
MAX_WAIT_MS = 600_000
# The size of an encoded predicate; a larger one is ignored, so that it drops nothing.
MAX_FILTER_BYTES = 64 * 1024
# With these error codes of a bucket, the fetch still waits for its other buckets.
QUIET_ERROR_CODES = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER.value, ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION.value}
)


class BucketFetch:
    """One bucket of a fetch. Exactly one of `local` and `error` is set once the plan is resolved."""

    __slots__ = ("bucket", "error", "local", "max_bytes", "offset")

    def __init__(self, bucket: TableBucket, offset: int, max_bytes: int) -> None:
        self.bucket = bucket
        self.offset = offset
        self.max_bytes = max_bytes
        self.local: LocalBucket | None = None
        self.error: FlussError | None = None


class TableFetch:
    """One table of a fetch; `error` is the answer for all its buckets."""

    __slots__ = ("batch_filter", "buckets", "entry", "error", "projection", "table_id")

    def __init__(self, table_id: int, entry: TableEntry | None, buckets: list[BucketFetch]) -> None:
        self.table_id = table_id
        self.entry = entry
        self.buckets = buckets
        self.error: FlussError | None = None
        self.projection: TableProjection | None = None
        self.batch_filter: BatchFilter | None = None

    @property
    def wants_whole_batches(self) -> bool:
        """True with a projection or filter; otherwise the answer is a plain range of bytes."""
        return self.projection is not None or self.batch_filter is not None


class FetchPlan:
    """A whole fetch. `max_wait_ms` is 0 if it must be answered at once; `stops` are those of its connection."""

    __slots__ = ("has_filter", "max_bytes", "max_wait_ms", "min_bytes", "remote_first", "stops", "tables")

    def __init__(self, request: pb.FetchLogRequest, tables: list[TableFetch], stops: ConnectionStops) -> None:
        self.tables = tables
        self.stops = stops
        self.has_filter = any(table.batch_filter is not None for table in tables)
        self.max_bytes = request.max_bytes
        self.remote_first = request.read_preference == REMOTE_FIRST
        self.min_bytes, self.max_wait_ms = wait_limits(request)


def wait_limits(request: pb.FetchLogRequest) -> tuple[int, int]:
    """The bytes to wait for, and the maximum time to wait in milliseconds."""
    if not request.HasField("min_bytes"):
        return 0, 0
    wait_ms = request.max_wait_ms if request.HasField("max_wait_ms") else DEFAULT_WAIT_MS
    return max(0, request.min_bytes), max(0, min(wait_ms, MAX_WAIT_MS))


def table_fetch(
    request: pb.PbFetchLogReqForTable,
    entry: TableEntry | None,
    cache: ProjectionCache,
    refused: FlussError | None = None,
    seen: set[TableBucket] | None = None,
) -> TableFetch:
    """Resolve the part of one table, without its logs; FlussError -1 if the whole request must fail.

    `refused` is the error if the caller may not read the table; then nothing else is reported about it.
    """
    buckets = _buckets_once(request, set() if seen is None else seen)
    table = TableFetch(request.table_id, entry, buckets)
    if refused is not None:
        table.error = refused
        return table
    has_filter = request.HasField("filter_predicate")
    if has_filter and (not request.HasField("filter_schema_id") or request.filter_schema_id < 0):
        raise FlussError(
            "a filter predicate requires filter_schema_id, the id of the schema for which it was built; send both",
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )
    if entry is None:
        table.error = FlussError(
            f"unknown table id {request.table_id}; refresh the metadata", ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION
        )
        return table
    if request.projection_pushdown_enabled:
        try:
            table.projection = cache.plan(entry, tuple(request.projected_fields))
        except FlussError as error:
            table.error = error
            return table
    if has_filter and buckets:
        table.batch_filter = _batch_filter(request, entry)
    return table


def _buckets_once(request: pb.PbFetchLogReqForTable, seen: set[TableBucket]) -> list[BucketFetch]:
    """The buckets of a table, without those that were named before: each read of a waiting fetch visits all of them."""
    buckets = []
    for item in request.buckets_req:
        bucket = bucket_of(request.table_id, item)
        if bucket not in seen:
            seen.add(bucket)
            buckets.append(BucketFetch(bucket, item.fetch_offset, item.max_fetch_bytes))
    return buckets


def _batch_filter(request: pb.PbFetchLogReqForTable, entry: TableEntry) -> BatchFilter | None:
    """The filter of a table. Filters are only an optimization: one that cannot be decoded is ignored."""
    schema = entry.schemas.get(request.filter_schema_id)
    if request.filter_predicate.ByteSize() > MAX_FILTER_BYTES:
        return None
    if schema is None or entry.property(LOG_FORMAT) != ARROW_FORMAT:
        return None
    try:
        return BatchFilter(read_predicate(request.filter_predicate, schema), schema)
    except ValueError:
        return None
