"""SCAN_KV and SCAN_KV_RANGE: the rows of a bucket, or of a range of its keys, as they were at one moment, in batches.

States of a scanner: open (waiting for the next call) -> busy (answering a call) -> open, or closed. It is closed at the
end of the rows, by the client, by any error, by a second call while it is busy, if it was idle for too long, or if its
bucket is gone. A closed scanner is in no map, so its id is unknown; the ids of scanners that were closed because they
were idle are kept for a while, so that the client gets the reason.

A scanner belongs to the user who opened it: for others its id is unknown. A user who has logged in cannot hold all
scanners of a bucket or of the tablet.

Invariants: the sequence number of a call is the number of calls before it; a scanner holds one `RowCursor`, which is
closed when the scanner is. All in the event loop's thread.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from fluss.codec.batches.value_batch import VALUE_BATCH_HEADER_BYTES, encode_value_batch
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import kv_range_api_pb2 as range_pb
from fluss.protocol.server_payloads import scan_kv_response_pieces
from fluss.server.config.server_config import ServerConfig
from fluss.server.runtime.handlers import ANONYMOUS_NAME, Reply, RequestContext
from fluss.server.storage.kv.store import FIRST_KEY
from fluss.server.tablet.kv.kv_reads import MAX_ANSWER_BYTES, KvReads, RowCursor

MAX_REMEMBERED_EXPIRED_SCANNERS = 1_000


@dataclass(frozen=True)
class ScanLimits:
    """The limits of scans on one tablet. The defaults are those of Apache Fluss."""

    idle_ms: int = 600_000
    sweep_interval_ms: int = 30_000
    max_scanners_per_bucket: int = 8
    max_scanners: int = 200
    max_batch_bytes: int = 10 * 1024 * 1024


def scan_limits(config: ServerConfig) -> ScanLimits:
    """Return the limits of scans that a server's configuration sets."""
    return ScanLimits(
        config.kv_scanner_ttl_ms,
        config.kv_scanner_expiration_interval_ms,
        config.kv_scanner_max_per_bucket,
        config.kv_scanner_max_per_server,
        min(config.kv_scanner_max_batch_size, MAX_ANSWER_BYTES),
    )


class Scanner:
    """An open scan: its position in the rows, its user, and the number of the next call."""

    __slots__ = (
        "bucket",
        "cursor",
        "is_busy",
        "is_closed",
        "last_used_ms",
        "next_sequence",
        "remaining",
        "scanner_id",
        "user",
    )

    def __init__(self, bucket: TableBucket, cursor: RowCursor, limit: int, now_ms: int, user: str) -> None:
        self.user = user
        self.scanner_id = str(uuid.uuid4()).encode()
        self.bucket = bucket
        self.cursor = cursor
        self.remaining: int | None = limit if limit > 0 else None
        self.next_sequence = 0
        self.last_used_ms = now_ms
        self.is_busy = False
        self.is_closed = False


class ScanKvApi:
    """Handler of SCAN_KV."""

    def __init__(self, reads: KvReads, clock: Callable[[], int], limits: ScanLimits) -> None:
        self._reads = reads
        self._clock = clock
        self._limits = limits
        self._scanners: dict[bytes, Scanner] = {}
        # Ids of scanners that were idle for too long, and the time until which they are kept; oldest first.
        self._expired: dict[bytes, int] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def open_scanners(self) -> int:
        """The number of open scanners."""
        return len(self._scanners)

    async def scan_kv(self, context: RequestContext, request: pb.ScanKvRequest) -> Reply:
        """Open, continue or close a scan; errors are part of the response."""
        try:
            opens = request.HasField("bucket_scan_req")
            if opens == request.HasField("scanner_id"):
                raise _invalid(
                    f"the request must have either a scanner id or a bucket, got {'both' if opens else 'neither'}"
                )
            if request.close_scanner:
                if opens:
                    raise _invalid("one request cannot open and close a scan; close it by its scanner id")
                scanner = self._scanners.get(request.scanner_id)
                self._close(scanner if scanner is not None and scanner.user == _user(context) else None)
                return pb.ScanKvResponse(has_more_results=False)
            if opens:
                if request.call_seq_id != 0 or not request.HasField("call_seq_id"):
                    raise _invalid(f"the first call of a scan must have sequence number 0, got {request.call_seq_id}")
                return await self._open(context, request)
            return await self._continue(context, request)
        except FlussError as error:
            return pb.ScanKvResponse(error_code=error.error_code, error_message=error.message)

    async def scan_kv_range(self, context: RequestContext, request: range_pb.ScanKvRangeRequest) -> Reply:
        """Open a scan of a range of keys; SCAN_KV continues it."""
        try:
            return await self._open(
                context, request, request.first_key, request.end_key if request.HasField("end_key") else None
            )
        except FlussError as error:
            return pb.ScanKvResponse(error_code=error.error_code, error_message=error.message)

    async def _open(
        self,
        context: RequestContext,
        request: pb.ScanKvRequest | range_pb.ScanKvRangeRequest,
        first_key: bytes = FIRST_KEY,
        end_key: bytes | None = None,
    ) -> Reply:
        reads, wanted = self._reads, request.bucket_scan_req
        reads.registry.follow_catalog()
        partition_id = wanted.partition_id if wanted.HasField("partition_id") else None
        bucket = TableBucket(wanted.table_id, partition_id, wanted.bucket_id)
        size = self._batch_bytes(request.batch_size_bytes)
        reads.check_table(context, bucket.table_id, checks_version=False)
        await reads.settled([bucket])
        local, store = await reads.whole_store(bucket)
        self._sweep()
        self._check_room(bucket, context)
        cursor = RowCursor(local, store, first_key, end_key)
        if not cursor.has_more:
            cursor.close()
            return pb.ScanKvResponse(has_more_results=False, log_offset=cursor.applied_offset)
        scanner = Scanner(bucket, cursor, wanted.limit, self._clock(), _user(context))
        self._scanners[scanner.scanner_id] = scanner
        self._start_sweeping()
        return await self._batch(context, scanner, size, pb.ScanKvResponse(log_offset=cursor.applied_offset))

    async def _continue(self, context: RequestContext, request: pb.ScanKvRequest) -> Reply:
        self._reads.registry.follow_catalog()
        scanner = self._find(request.scanner_id)
        if scanner.user != _user(context):
            raise _unknown(request.scanner_id)
        try:
            self._reads.check_table(context, scanner.bucket.table_id, checks_version=False)
            if scanner.is_busy:
                raise _invalid("the scan is still answering another call; send one call at a time")
            if not request.HasField("call_seq_id") or request.call_seq_id != scanner.next_sequence:
                raise _invalid(f"sequence number must be {scanner.next_sequence}, got {request.call_seq_id}")
            size = self._batch_bytes(request.batch_size_bytes)
            scanner.cursor.check_open()
        except FlussError:
            self._close(scanner)
            raise
        return await self._batch(context, scanner, size, pb.ScanKvResponse())

    async def _batch(self, context: RequestContext, scanner: Scanner, size: int, response: pb.ScanKvResponse) -> Reply:
        """Fill `response` with the next rows."""
        scanner.is_busy = True
        values: list[bytes] = []
        try:
            async for step in scanner.cursor.steps(scanner.remaining, max(size - VALUE_BATCH_HEADER_BYTES, 1)):
                values += step
                context.collect(sum(map(len, step)))
                await context.room()
        except BaseException:
            self._close(scanner)
            raise
        scanner.is_busy = False
        if scanner.is_closed:
            raise _unknown(scanner.scanner_id)
        scanner.next_sequence += 1
        scanner.last_used_ms = self._clock()
        if scanner.remaining is not None:
            scanner.remaining -= len(values)
        response.scanner_id = scanner.scanner_id
        response.has_more_results = scanner.cursor.has_more and scanner.remaining != 0
        if not response.has_more_results:
            self._close(scanner)
        return scan_kv_response_pieces(response, [encode_value_batch(values)])

    def _batch_bytes(self, wanted: int) -> int:
        if wanted <= 0:
            raise _invalid(f"batch_size_bytes must be greater than zero, got {wanted}")
        return min(wanted, self._limits.max_batch_bytes)

    def _find(self, scanner_id: bytes) -> Scanner:
        scanner = self._scanners.get(scanner_id)
        if scanner is not None and not self._is_expired(scanner):
            return scanner
        self._sweep()
        if scanner_id in self._expired:
            raise FlussError(
                f"the scan was idle for more than {self._limits.idle_ms} ms and was closed; start it again",
                ErrorCode.SCANNER_EXPIRED,
            )
        raise _unknown(scanner_id)

    def _check_room(self, bucket: TableBucket, context: RequestContext) -> None:
        limits, user = self._limits, _user(context)
        of_bucket = sum(scanner.bucket == bucket for scanner in self._scanners.values())
        if of_bucket >= limits.max_scanners_per_bucket or len(self._scanners) >= limits.max_scanners:
            raise FlussError(
                f"too many open scans: {of_bucket} on the bucket (at most {limits.max_scanners_per_bucket} allowed), "
                f"{len(self._scanners)} on the server (at most {limits.max_scanners}); close some or retry later",
                ErrorCode.TOO_MANY_SCANNERS,
            )
        if context.principal_name == ANONYMOUS_NAME:
            return  # Without logins, all users are the same.
        own = [scanner.bucket for scanner in self._scanners.values() if scanner.user == user]
        bucket_share, server_share = _share(limits.max_scanners_per_bucket), _share(limits.max_scanners)
        if own.count(bucket) >= bucket_share or len(own) >= server_share:
            raise FlussError(
                f"too many open scans: {user} has {own.count(bucket)} on the bucket (at most {bucket_share} allowed "
                f"per user), {len(own)} on the server (at most {server_share}); close some or retry later",
                ErrorCode.TOO_MANY_SCANNERS,
            )

    def _is_expired(self, scanner: Scanner) -> bool:
        return not scanner.is_busy and self._clock() - scanner.last_used_ms > self._limits.idle_ms

    def _start_sweeping(self) -> None:
        if self._sweep_timer is None and self._scanners:
            loop = asyncio.get_running_loop()
            self._sweep_timer = loop.call_later(self._limits.sweep_interval_ms / 1000, self._sweep_again)

    def _sweep_again(self) -> None:
        self._sweep_timer = None
        self._sweep()
        self._start_sweeping()

    def _sweep(self) -> None:
        """Close scanners that were idle for too long or have lost their bucket; drop ids that were kept long enough."""
        now = self._clock()
        for scanner in list(self._scanners.values()):
            if self._is_expired(scanner):
                self._expired[scanner.scanner_id] = now + 2 * self._limits.idle_ms
                self._close(scanner)
            elif scanner.cursor.is_lost and not scanner.is_busy:
                self._close(scanner)
        while self._expired:
            oldest = next(iter(self._expired))
            if len(self._expired) <= MAX_REMEMBERED_EXPIRED_SCANNERS and self._expired[oldest] >= now:
                break
            del self._expired[oldest]

    def _close(self, scanner: Scanner | None) -> None:
        if scanner is not None:
            scanner.is_closed = True
            scanner.cursor.close()
            self._scanners.pop(scanner.scanner_id, None)


def _user(context: RequestContext) -> str:
    return f"{context.principal_type}:{context.principal_name}"


def _share(limit: int) -> int:
    """The share of a limit that one user may hold: an eighth, at least one, is left for others."""
    return max(1, limit - max(1, limit // 8))


def _invalid(text: str) -> FlussError:
    return FlussError(text, ErrorCode.INVALID_SCAN_REQUEST)


def _unknown(scanner_id: bytes) -> FlussError:
    name = scanner_id.decode(errors="replace")
    return FlussError(f"scan {name!r} does not exist or was closed; start it again", ErrorCode.UNKNOWN_SCANNER_ID)
