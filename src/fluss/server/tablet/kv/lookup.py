"""LOOKUP: rows by primary key.

The keys of a bucket are looked up in calls of `STEP_KEYS` keys, between which the event loop serves other requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache, partial

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.server_payloads import encode_varint
from fluss.protocol.wire_fields import LENGTH_DELIMITED
from fluss.server.runtime.handlers import Reply, RequestContext
from fluss.server.storage.kv.store import KvStore
from fluss.server.tablet.buckets.write_requests import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from fluss.server.tablet.kv.bucket_answers import answer_by_bucket
from fluss.server.tablet.kv.insert_missing import MissingRows
from fluss.server.tablet.kv.kv_reads import KvReads, too_large

STEP_KEYS = 1_000
MAX_INSERTED_KEYS = 10_000
DEFAULT_INSERT_TIMEOUT_MS = 30_000
_VALUE_TAG = bytes((5 << 3 | LENGTH_DELIMITED,))
_BYTES_TAG = bytes((1 << 3 | LENGTH_DELIMITED,))
_NOT_FOUND = _VALUE_TAG + b"\0"
_CACHED_LENGTHS = 4096


@lru_cache(_CACHED_LENGTHS)
def _value_prefix(length: int) -> bytes:
    inner = _BYTES_TAG + encode_varint(length)
    return _VALUE_TAG + encode_varint(len(inner) + length) + inner


def encode_values(values: Sequence[bytes | None]) -> list[bytes]:
    """The `values` fields of a bucket's answer, as a list of bytes to be joined."""
    pieces: list[bytes] = []
    for value in values:
        if value is None:
            pieces.append(_NOT_FOUND)
        else:
            pieces.append(_value_prefix(len(value)))
            pieces.append(value)
    return pieces


class LookupApi:
    """Handler of LOOKUP."""

    def __init__(self, reads: KvReads, missing_rows: MissingRows) -> None:
        self._reads = reads
        self._missing_rows = missing_rows

    async def lookup(self, context: RequestContext, request: pb.LookupRequest) -> Reply:
        """Look up the keys of each bucket; an error is the result of its bucket."""

        async def rows(bucket: TableBucket, item: pb.PbLookupReqForBucket, max_bytes: int) -> bytes:
            if item.HasField("original_partition_name"):
                raise FlussError(
                    "historical lookups are not supported by this server; look up the partition itself",
                    ErrorCode.UNSUPPORTED_VERSION,
                )
            if request.insert_if_not_exists:
                await self._insert_missing(bucket, request, item.keys)
            return await self._values(context, bucket, item.keys, max_bytes)

        return await answer_by_bucket(
            self._reads,
            request.table_id,
            request.buckets_req,
            pb.PbLookupRespForBucket,
            rows,
            lambda: self._check(context, request),
        )

    def _check(self, context: RequestContext, request: pb.LookupRequest) -> None:
        reads = self._reads
        reads.check_table(context, request.table_id)
        if not request.insert_if_not_exists:
            return
        if not request.HasField("acks") or request.acks not in (ACKS_ALL, ACKS_NONE, ACKS_LEADER):
            text = f"acks of a lookup that inserts must be -1, 0 or 1, got {request.acks}"
            raise FlussError(text, ErrorCode.INVALID_REQUIRED_ACKS)
        entry = reads.registry.table(request.table_id)
        error = reads.access.insert_error(context, entry.path) if entry is not None else None
        if error is not None:
            raise error

    async def _insert_missing(self, bucket: TableBucket, request: pb.LookupRequest, keys: Sequence[bytes]) -> None:
        local, store = self._reads.store(bucket)
        entry = self._reads.registry.table(bucket.table_id)
        wanted = list(dict.fromkeys(keys))
        if len(wanted) > MAX_INSERTED_KEYS:
            raise FlussError(
                f"a lookup may insert at most {MAX_INSERTED_KEYS} rows into a bucket, got {len(wanted)} keys; send "
                "several requests",
                ErrorCode.RECORD_TOO_LARGE_EXCEPTION,
            )
        found = _get(store, wanted)
        missing = [key for key, value in zip(wanted, found, strict=True) if value is None]
        if not missing or entry is None:
            return
        partition = next((item for item in entry.partitions.values() if item.partition_id == bucket.partition_id), None)
        timeout_ms = request.timeout_ms if request.HasField("timeout_ms") else DEFAULT_INSERT_TIMEOUT_MS
        check = partial(self._reads.registry.check_takes_rows, local)
        await self._missing_rows.insert(local, entry, partition, missing, timeout_ms, check)

    async def _values(
        self, context: RequestContext, bucket: TableBucket, keys: Sequence[bytes], max_bytes: int
    ) -> bytes:
        _, store = self._reads.store(bucket)
        if len(keys) <= STEP_KEYS:
            payload = b"".join(encode_values(_get(store, list(keys))))
            if len(payload) > max_bytes:
                raise too_large("the rows of these keys")
            return payload
        steps: list[bytes] = []
        size = 0
        for start in range(0, len(keys), STEP_KEYS):
            if start:
                await asyncio.sleep(0)
                await context.room()
                _, store = self._reads.store(bucket)  # The bucket may have been closed meanwhile.
            step = b"".join(encode_values(_get(store, list(keys[start : start + STEP_KEYS]))))
            size += len(step)
            if size > max_bytes:
                raise too_large("the rows of these keys")
            context.collect(len(step))
            steps.append(step)
        return b"".join(steps)


def _get(store: KvStore, keys: list[bytes]) -> list[bytes | None]:
    if not all(keys):
        raise FlussError("a key of a lookup must not be empty, got b''", ErrorCode.KV_STORAGE_EXCEPTION)
    return store.multi_get(keys)
