"""Rows of primary-key tables as bytes, by partition and bucket, and the batches for PUT_KV.

The rows of a record batch (the table's columns and a last one that marks deletes) are encoded all at once:
one array of keys and one of rows, null for deletes. Only these two are then divided by bucket, joined with those of
other batches, and put after a batch header.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.net.metadata import ClientTable
from fluss.client.send.log_encoding import BatchEncoder
from fluss.client.write.routing import MAX_ROWS_HASHED_ONE_BY_ONE, Indices, Routed, Router, bucket_key_plan, split_rows
from fluss.codec.batches.kv_batch import encode_kv_batch, numbered_kv_batch
from fluss.codec.keys.bucketing import BUCKET_OF_LAKE_FORMAT, BUCKETS_OF_LAKE_FORMAT, Tail
from fluss.codec.keys.encoding import KeyEncoding, check_stored_keys, encode_key, encode_keys
from fluss.codec.keys.partition_names import partition_names
from fluss.codec.rows.arrow_values import column_to_values
from fluss.codec.rows.columns import COLUMN_WISE_MIN_ROWS, RowFormat, encode_rows
from fluss.codec.rows.values import RowValueError
from fluss.errors import ErrorCode, FlussError
from fluss.model.types import DataType

# A server merges the rows of a batch in one step, a few microseconds each, while other requests wait.
MAX_KV_BATCH_ROWS = 16_384
KV_FORMAT_PROPERTY = "table.kv.format"
_ENCODED = pa.schema([("key", pa.binary()), ("row", pa.binary())])


class KvEncoder(BatchEncoder):
    """Batches of encoded keys and rows."""

    max_batch_rows = MAX_KV_BATCH_ROWS

    def __init__(self, table: ClientTable, max_batch_bytes: int, target_columns: tuple[int, ...]) -> None:
        super().__init__(table, max_batch_bytes)
        self.target_columns = target_columns

    def encode(self, rows: pa.RecordBatch) -> bytes:
        """Encode one key-value batch, not numbered."""
        keys, values = rows.columns
        try:
            if rows.num_rows < COLUMN_WISE_MIN_ROWS:
                return encode_kv_batch(keys.to_pylist(), values.to_pylist(), self.table.schema_id)
            return encode_kv_batch(keys, values, self.table.schema_id)
        except ValueError as error:
            raise FlussError(f"rows for table {self.table.path} cannot be sent: {error}") from None

    def numbered(self, data: bytes, writer_id: int, sequence: int) -> list[bytes | memoryview]:
        """A new header in front of the same records."""
        return numbered_kv_batch(data, writer_id, sequence)


class KvRouter(Router):
    """Encodes and divides record batches of one table. `types` are the column types that rows are encoded with."""

    def __init__(self, table: ClientTable, types: Sequence[DataType], tail: Tail = "java") -> None:
        super().__init__(table, "sticky", 1, lambda name: range(table.bucket_count), tail)
        plan = bucket_key_plan(table)
        assert plan is not None, "primary-key tables have a key"
        self._types = types
        self._row_format = kv_row_format(table)
        self._encoding = plan.primary_encoding
        self._primary_positions = [table.schema.position(name) for name in plan.primary_columns]
        self._primary_types = [table.schema.data_types[position].not_null() for position in self._primary_positions]
        self._bucketing = plan.bucketing if plan.bucket_key_is_primary_key else None
        self._hashes_primary_key = plan.bucket_key_is_primary_key

    def route(self, batch: pa.RecordBatch) -> list[Routed]:
        """Encode keys and rows and divide them by partition and bucket, in their order."""
        if not batch.num_rows:
            return []
        try:
            keys = self._keys(batch)
            encoded = pa.RecordBatch.from_arrays([keys, self._rows(batch)], schema=_ENCODED)
            buckets = self._buckets(batch, keys)
            if not self._partition_positions:
                return [Routed(None, bucket, rows) for bucket, rows in self._split(encoded, buckets, 1)]
            return self._route_partitions(batch, encoded, buckets)
        except RowValueError as error:
            raise FlussError(f"the rows do not fit table {self._table.path}: {error}") from None

    def _keys(self, batch: pa.RecordBatch) -> pa.Array:
        columns = [batch.column(position) for position in self._primary_positions]
        types, encoding = self._primary_types, self._encoding
        if batch.num_rows <= MAX_ROWS_HASHED_ONE_BY_ONE:
            rows = zip(*map(column_to_values, columns, types), strict=True)
            keys = pa.array([encode_key(row, types, encoding) for row in rows], pa.binary())
        else:
            keys = as_binary(encode_keys(columns, types, encoding, batch.num_rows))
        if encoding is KeyEncoding.ICEBERG:
            check_stored_keys(keys)
        return keys

    def _rows(self, batch: pa.RecordBatch) -> pa.Array:
        deletes = batch.column(batch.num_columns - 1)
        columns = batch.select(range(batch.num_columns - 1))
        delete_count = deletes.true_count
        if not delete_count:
            return as_binary(encode_rows(columns, self._types, self._row_format))
        if delete_count == batch.num_rows:
            return pa.nulls(batch.num_rows, pa.binary())
        # Deletes have nulls in columns that may be NOT NULL, so only the other rows are encoded.
        upserts = np.asarray(pc.invert(deletes))
        rows = as_binary(encode_rows(columns.filter(pa.array(upserts)), self._types, self._row_format))
        return rows.take(pa.array(np.cumsum(upserts) - 1, mask=~upserts))

    def _buckets(self, batch: pa.RecordBatch, keys: pa.Array) -> Indices:
        bucket_count = self._table.bucket_count
        if bucket_count == 1:
            return np.zeros(batch.num_rows, np.int32)
        if not self._hashes_primary_key:
            return self._hash(batch)
        if batch.num_rows <= MAX_ROWS_HASHED_ONE_BY_ONE:
            bucket_of = BUCKET_OF_LAKE_FORMAT[self._bucketing]
            return np.asarray([bucket_of(key, bucket_count, self._tail) for key in keys.to_pylist()])
        return BUCKETS_OF_LAKE_FORMAT[self._bucketing](keys, bucket_count, self._tail)

    def _split(
        self, encoded: pa.RecordBatch, numbers: Indices, partition_count: int
    ) -> list[tuple[int, pa.RecordBatch]]:
        return split_rows(encoded, numbers, partition_count * self._table.bucket_count)

    def _route_partitions(self, batch: pa.RecordBatch, encoded: pa.RecordBatch, buckets: Indices) -> list[Routed]:
        columns = [batch.column(position) for position in self._partition_positions]
        names = partition_names(columns, self._partition_types).dictionary_encode()
        distinct: list[str] = names.dictionary.to_pylist()
        for name in distinct:
            self.check_name(name)
        bucket_count = self._table.bucket_count
        numbers = np.asarray(names.indices).astype(np.int64) * bucket_count + buckets
        return [
            Routed(distinct[number // bucket_count], number % bucket_count, rows)
            for number, rows in self._split(encoded, numbers, len(distinct))
        ]


def as_binary(array: pa.Array) -> pa.Array:
    """Codecs may return other binary layouts; batches of one writer must have one."""
    return array if array.type == pa.binary() else array.cast(pa.binary())


def kv_row_format(table: ClientTable) -> RowFormat:
    """The row format of a primary-key table."""
    name = (table.property(KV_FORMAT_PROPERTY) or RowFormat.COMPACTED.value).strip().upper()
    try:
        return RowFormat(name)
    except ValueError:
        text = f"table {table.path} has kv format {name!r}, which this client does not support"
        raise FlussError(text, ErrorCode.INVALID_TABLE_EXCEPTION) from None
