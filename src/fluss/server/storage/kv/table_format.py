"""The formats in which rows of a primary-key table are stored: all that the storage has to know about a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from fluss.codec.arrow.compression import Compression
from fluss.codec.batches.changelog import ChangelogCodec
from fluss.codec.batches.kv_values import ValueReader, encode_values
from fluss.codec.keys.encoding import KeyEncoding, encode_keys
from fluss.codec.rows.columns import RowFormat
from fluss.model.paths import ChangeType
from fluss.model.schema import Schema
from fluss.model.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    RowType,
    TimestampLtzType,
    TimestampType,
    TimeType,
)

# Rows store milliseconds of a TIME, and milliseconds and nanoseconds of a TIMESTAMP: for these precisions, Arrow's unit
# is coarser.
_COARSE_TIMES = frozenset({0})
_COARSE_TIMESTAMPS = frozenset({0, 4, 5, 6})


@dataclass(frozen=True)
class KvTableFormat:
    """The schemas of a table by id, the id of the newest one, and its formats. Recreated when columns are added."""

    schemas: Mapping[int, Schema]
    schema_id: int
    row_format: RowFormat
    log_format: str
    compression: Compression
    key_columns: tuple[str, ...]
    key_encoding: KeyEncoding
    # True if the changelog has an insert or a delete for every row that is added or removed.
    counts_rows: bool

    @property
    def schema(self) -> Schema:
        """The newest schema, in which changelog rows are written."""
        return self.schemas[self.schema_id]

    @cached_property
    def reader(self) -> ValueReader:
        """The reader that decodes stored values of any schema to rows of the newest one."""
        return ValueReader(self.schemas, self.schema_id, self.row_format)

    @cached_property
    def changelog(self) -> ChangelogCodec:
        """The codec that writes and reads changelog batches."""
        return ChangelogCodec(self.schemas, self.schema_id, self.log_format, self.compression)

    @cached_property
    def may_change_values(self) -> bool:
        """True if a value read back from the changelog, which has Arrow's units, may differ from the stored one."""
        return any(map(_may_change, self.schema.data_types))

    def entries(self, columns: list[pa.Array], change_types: bytes) -> tuple[dict[bytes, bytes | None], int]:
        """The result of changelog rows (in the newest schema): values by key, and the change of the row count."""
        types = np.frombuffer(change_types, np.uint8)
        kept = np.flatnonzero(types != ChangeType.UPDATE_BEFORE)
        if not len(kept):
            return {}, 0
        if len(kept) < len(types):
            columns = [column.take(pa.array(kept)) for column in columns]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.changelog.arrow_schema)
        positions = [self.schema.position(name) for name in self.key_columns]
        key_types = [self.schema.data_types[position] for position in positions]
        keys = encode_keys([rows.column(position) for position in positions], key_types, self.key_encoding, len(kept))
        values: list[bytes | None] = encode_values(rows, self.schema_id, self.schema, self.row_format).to_pylist()
        for index in np.flatnonzero(types[kept] == ChangeType.DELETE).tolist():
            values[index] = None
        inserted = int((types == ChangeType.INSERT).sum())
        deleted = int((types == ChangeType.DELETE).sum())
        return dict(zip(keys.to_pylist(), values, strict=True)), inserted - deleted


def _may_change(data_type: DataType) -> bool:
    """True if a row may hold more digits than the type's precision, or more or fewer bytes than its length."""
    if isinstance(data_type, TimeType):
        return data_type.precision in _COARSE_TIMES
    if isinstance(data_type, TimestampType | TimestampLtzType):
        return data_type.precision in _COARSE_TIMESTAMPS
    if isinstance(data_type, ArrayType):
        return _may_change(data_type.element)
    if isinstance(data_type, MapType):
        return _may_change(data_type.key) or _may_change(data_type.value)
    if isinstance(data_type, RowType):
        return any(_may_change(field.data_type) for field in data_type.fields)
    return isinstance(data_type, BinaryType)
