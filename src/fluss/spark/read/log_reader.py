"""Reads a range of offsets: rows of a log table, or changes of a primary-key table.

Servers project columns and leave out batches that the filter cannot match; here the filter is applied to the rows. A
read of offsets alone needs no server: in a log table every offset is a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from fluss.client.engine.rows import LogRows, ScanPlan, StoredBatch, warn_of
from fluss.codec.batches.log_batch import CorruptBatch
from fluss.errors import ErrorCode, FlussError
from fluss.model.schema import Column, Schema
from fluss.spark.convert.types import LOG_OFFSET_COLUMN
from fluss.spark.read.output_batches import METADATA_COLUMNS, with_change_columns
from fluss.spark.read.splits import BucketRange
from fluss.spark.read.stored_batches import has_same_memory
from fluss.spark.sessions.connection_cache import OpenTable
from fluss.values.basic import TableBucket
from fluss.values.predicates import Predicate

OFFSET_BATCH_ROWS = 65_536
SKIPPING_ADVICE = "the option onBadBatch=skip leaves such batches out"
# Bytes of a value in a batch, by type, for choosing the cheapest column; strings and nested values come last.
_WIDTHS = {
    "BOOLEAN": 1,
    "TINYINT": 1,
    "SMALLINT": 2,
    "INTEGER": 4,
    "FLOAT": 4,
    "DATE": 4,
    "TIME_WITHOUT_TIME_ZONE": 4,
    "BIGINT": 8,
    "DOUBLE": 8,
    "TIMESTAMP_WITHOUT_TIME_ZONE": 8,
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": 8,
    "DECIMAL": 16,
}
_UNKNOWN_WIDTH = 64


def cheapest_column(schema: Schema) -> str:
    """The column that costs the least to read, used when only the number of rows matters."""
    return min(schema.columns, key=_width).name


def share_of_columns(schema: Schema, names: Collection[str]) -> float:
    """The approximate share of a row's bytes that these columns take."""
    whole = sum(map(_width, schema.columns))
    return sum(_width(column) for column in schema.columns if column.name in names) / whole


def _width(column: Column) -> int:
    return _WIDTHS.get(column.data_type.root, _UNKNOWN_WIDTH)


def read_log(
    opened: OpenTable,
    each: BucketRange,
    columns: Sequence[str],
    predicate: Predicate | None,
    patience_seconds: float,
    *,
    stored_for: pa.Schema | None = None,
    skips_bad_batches: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Return record batches with at least the wanted columns, in offset order.

    With `stored_for`, whole batches that have the memory layout of this schema are returned as the server stores them,
    unread. With `skips_bad_batches` all batches are decoded, because a bad batch is only noticed by decoding it.
    """
    schema = opened.access.schema
    own = [name for name in columns if name not in METADATA_COLUMNS]
    extra = [name for name in columns if name in METADATA_COLUMNS]
    has_times = each.since_ms is not None or each.until_ms is not None
    only_offsets = extra == [LOG_OFFSET_COLUMN] and not own and predicate is None and not has_times
    if only_offsets and not opened.info.has_primary_key():
        yield from _offsets_only(each)
        return
    projection = tuple(schema.position(name) for name in own or [cheapest_column(schema)])
    is_whole = list(projection) == list(range(len(schema.columns)))
    plan = bad_batch_plan(ScanPlan(projection=None if is_whole else projection), skips=skips_bad_batches)
    if predicate is not None:
        plan = replace(plan, predicate=predicate)
    elif (
        stored_for is not None
        and not skips_bad_batches
        and not extra
        and has_same_memory(schema, projection, stored_for)
    ):
        plan = replace(plan, keep_stored=True)
    bucket = TableBucket.with_partition(opened.info.table_id, each.partition_id, each.bucket_id)
    ranges = {bucket: (each.start, each.stop)}
    with opened.access.read_log(ranges, plan, patience_seconds=patience_seconds) as log:
        for rows in log:
            if has_times and not is_within(rows, each):
                continue
            if isinstance(rows.rows, StoredBatch) and not rows.rows.is_whole:
                yield _decoded(rows, rows.rows, str(opened.info.table_path))
            else:
                yield with_change_columns(rows, extra) if extra else rows.rows


def bad_batch_plan(plan: ScanPlan, *, skips: bool) -> ScanPlan:
    """Return the plan with its rule for batches that cannot be read, and with the advice for errors about them."""
    return replace(plan, on_skipped=warn_of if skips else None, skipping_advice=SKIPPING_ADVICE)


def _decoded(rows: LogRows, stored: StoredBatch, table: str) -> pa.RecordBatch:
    """Decode those rows of a stored batch that are in the range, for a batch at the start or the end of it."""
    try:
        return stored.decoded()
    except CorruptBatch as error:
        text = (
            f"{rows.bucket} of {table}: the batch of offsets {rows.offset_of(0)} to {rows.last_offset} cannot be read: "
            f"{error}; {SKIPPING_ADVICE}"
        )
        raise FlussError(text, ErrorCode.CORRUPT_RECORD_EXCEPTION) from None


def is_within(rows: LogRows, each: BucketRange) -> bool:
    """True if the commit time, which all rows of a batch share, is within the bounds."""
    return (each.since_ms is None or rows.timestamp >= each.since_ms) and (
        each.until_ms is None or rows.timestamp < each.until_ms
    )


def _offsets_only(each: BucketRange) -> Iterator[pa.RecordBatch]:
    for start in range(each.start, each.stop, OFFSET_BATCH_ROWS):
        offsets = np.arange(start, min(start + OFFSET_BATCH_ROWS, each.stop), dtype=np.int64)
        yield pa.RecordBatch.from_arrays([pa.array(offsets)], names=[LOG_OFFSET_COLUMN])
