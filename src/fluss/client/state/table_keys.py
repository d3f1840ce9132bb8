"""The stored keys of rows that are in memory as Arrow batches. Immutable, used by any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss.client.keys.lookup_keys import table_key_plan
from fluss.client.net.metadata import ClientTable
from fluss.codec.keys.bucketing import fluss_buckets
from fluss.codec.keys.encoding import encode_keys

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss.codec.keys.bucketing import Int32s


class TableKeys:
    """The primary keys of a table, in the server's stored form and order (by unsigned bytes, without partitions)."""

    def __init__(self, table: ClientTable) -> None:
        plan = table_key_plan(table)
        self.positions = tuple(table.schema.position(name) for name in plan.primary_columns)
        self._types = [table.schema.data_types[position] for position in self.positions]
        self._encoding = plan.primary_encoding
        self._bucket_count = table.bucket_count

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """A binary array with the key of each row of a batch that has all columns of the table."""
        columns = [batch.column(position) for position in self.positions]
        return encode_keys(columns, self._types, self._encoding, batch.num_rows)

    def last_of(self, batch: pa.RecordBatch) -> bytes:
        """The key of the last row of a batch that is not empty."""
        found: bytes = self.of(batch.slice(batch.num_rows - 1))[0].as_py()
        return found

    def shares(self, batch: pa.RecordBatch, count: int) -> Int32s:
        """The share, out of `count`, of each row's key; they are even within one bucket too."""
        return fluss_buckets(self.of(batch), count * self._bucket_count) // self._bucket_count
