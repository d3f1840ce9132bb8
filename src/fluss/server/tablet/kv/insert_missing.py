"""Lookups that insert missing rows: a row with the key columns and nothing else.

The key columns are decoded from the key bytes, so the encoding of the table's keys must be reversible; partition
columns come from the name of the partition. The rows go through the normal put with the key columns as targets: a row
that another writer inserted meanwhile stays as it is, and an auto-increment column gets its number. Callers wait until
the rows are durable, so that a second lookup finds them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fluss.codec.batches.kv_batch import KvHeader, KvRecords
from fluss.codec.batches.kv_values import encode_value
from fluss.codec.batches.log_batch import NO_BATCH_SEQUENCE, NO_WRITER_ID
from fluss.codec.keys.encoding import KeyEncoding, decode_compacted_key
from fluss.codec.keys.partition_values import partition_value
from fluss.codec.rows.aligned import decode_aligned_row
from fluss.codec.rows.values import CorruptRowError, RowValueError
from fluss.errors import ErrorCode, FlussError
from fluss.server.catalog import PartitionEntry, TableEntry
from fluss.server.runtime.time_slices import TimeSlices
from fluss.server.storage.log.append import Append
from fluss.server.storage.log.committer import Committer
from fluss.server.tablet.buckets.kv_rules import KvRules
from fluss.server.tablet.buckets.local_bucket import LocalBucket
from fluss.server.tablet.kv.put import KvWriter
from fluss.server.tablet.kv.put_queue import PutQueues

# Keys per step, which takes a few milliseconds: these rows are created one by one.
STEP_KEYS = 250

_DECODERS = {KeyEncoding.COMPACTED: decode_compacted_key, KeyEncoding.PAIMON: decode_aligned_row}


def rows_of_keys(rules: KvRules, partition: PartitionEntry | None, keys: list[bytes]) -> list[list[object]]:
    """Rows of the newest schema, with the columns of the primary key filled in and all others null."""
    entry, plan = rules.entry, rules.key_plan
    decode = _DECODERS.get(plan.primary_encoding)
    if decode is None:
        raise _impossible(entry, f"keys in the {plan.primary_encoding.value} encoding cannot be decoded")
    schema = entry.schema
    types = [schema.data_types[schema.position(name)] for name in plan.primary_columns]
    empty: list[Any] = [None] * len(schema.columns)
    if partition is not None:
        for name, text in zip(entry.descriptor.partition_keys, partition.values, strict=True):
            position = schema.position(name)
            try:
                empty[position] = partition_value(text, schema.data_types[position])
            except ValueError as error:
                raise _impossible(entry, f"partition column {name}: {error}") from None
    rows = []
    for key in keys:
        row = list(empty)
        for name, value in zip(plan.primary_columns, decode(key, types), strict=True):
            row[schema.position(name)] = value
        rows.append(row)
    return rows


class MissingRows:
    """Inserts rows for keys that were not found. Event loop only."""

    def __init__(self, writer: KvWriter, committer: Committer, queues: PutQueues) -> None:
        self._writer = writer
        self._committer = committer
        self._queues = queues

    async def insert(
        self,
        local: LocalBucket,
        entry: TableEntry,
        partition: PartitionEntry | None,
        keys: list[bytes],
        timeout_ms: int,
        check: Callable[[], None],
    ) -> None:
        """Insert a row for each key and wait until they can be looked up; FlussError if they cannot be inserted.

        `check` raises that error if the bucket accepts no more rows.
        """
        turns = TimeSlices()
        for start in range(0, len(keys), STEP_KEYS):
            await turns.yield_if_over()
            if self._committer.is_full:
                text = f"too many bytes ({self._committer.queued_bytes}) wait for the disk; repeat the lookup later"
                raise FlussError(text, ErrorCode.KV_STORAGE_EXCEPTION)
            await self._queues.idle(local)
            check()
            append = self._put(local, entry, partition, keys[start : start + STEP_KEYS])
        await _durable(append, timeout_ms)  # if the last append is durable, so are those before it

    def _put(
        self, local: LocalBucket, entry: TableEntry, partition: PartitionEntry | None, keys: list[bytes]
    ) -> Append:
        rules = self._writer.rules(entry)
        try:
            rows = rows_of_keys(rules, partition, keys)
            values: list[bytes | None] = [
                encode_value(row, entry.schema_id, entry.schema, rules.format.row_format) for row in rows
            ]
        except (CorruptRowError, RowValueError) as error:
            raise FlussError(f"{local.name}: {error}", ErrorCode.CORRUPT_RECORD_EXCEPTION) from error
        header = KvHeader(0, 0, 0, entry.schema_id, 0, NO_WRITER_ID, NO_BATCH_SEQUENCE, len(keys))
        records = KvRecords(header, keys, values)
        return self._writer.put(local, entry, records, sorted(rules.key_positions))


async def _durable(append: Append, timeout_ms: int) -> None:
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[FlussError | None] = loop.create_future()

    def settle(error: FlussError | None) -> None:
        if not outcome.done():
            outcome.set_result(error)

    append.add_durable(settle)
    try:
        error = await asyncio.wait_for(outcome, max(timeout_ms, 0) / 1000)
    except TimeoutError:
        text = f"the inserted rows are not durable after {timeout_ms} ms; they are kept and may still become durable"
        raise FlussError(text, ErrorCode.REQUEST_TIME_OUT) from None
    if error is not None:
        raise FlussError(error.message, error.error_code)


def _impossible(entry: TableEntry, reason: str) -> FlussError:
    return FlussError(
        f"a lookup cannot insert rows into {entry.path}: {reason}; write them instead",
        ErrorCode.INVALID_TABLE_EXCEPTION,
    )
