"""Encodes and decodes the values of the key-value store: an int16 schema id, and a row in that schema.

Rows stay in the schema they were written with, so the values of one bucket may have different schema ids. Decoding
converts them all to one schema: values are grouped by id, each group is decoded column by column, and the groups are
put back into the order of the values. There is nearly always only one group.


>>> from fluss.model.schema import Column, Schema
>>> from fluss.model.types import IntType, StringType
>>> schema = Schema((Column("id", IntType()), Column("name", StringType())))
>>> value = encode_value([1, "a"], 1, schema, RowFormat.COMPACTED); value.hex()
'010000010161'
>>> ValueReader({1: schema}, 1, RowFormat.COMPACTED).row(value)
[1, 'a']
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa

from fluss.codec.buffers import byte_view
from fluss.codec.rows.column_buffers import binary_parts, fixed_size, join
from fluss.codec.rows.columns import RowFormat, decode_rows, empty_columns, row_components
from fluss.codec.rows.compacted import decode_compacted_row, encode_compacted_row
from fluss.codec.rows.indexed import decode_indexed_row, encode_indexed_row
from fluss.codec.rows.schema_mapping import column_mapping, map_columns, map_values
from fluss.codec.rows.values import CorruptRowError
from fluss.codec.rows.varint import Int64s
from fluss.model.schema import Schema

SCHEMA_ID_BYTES = 2
MAX_SCHEMA_ID = 2**15 - 1
_SCHEMA_ID = Struct("<h")
_ENCODE = {RowFormat.COMPACTED: encode_compacted_row, RowFormat.INDEXED: encode_indexed_row}
_DECODE = {RowFormat.COMPACTED: decode_compacted_row, RowFormat.INDEXED: decode_indexed_row}


def schema_id_prefix(schema_id: int) -> bytes:
    """The encoded schema id, with which every value in that schema begins."""
    if not 0 <= schema_id <= MAX_SCHEMA_ID:
        raise ValueError(f"schema id must be from 0 to {MAX_SCHEMA_ID}, got {schema_id}")
    return _SCHEMA_ID.pack(schema_id)


def encode_value(row: Sequence[object], schema_id: int, schema: Schema, row_format: RowFormat) -> bytes:
    """Encode one row, given as logical values (`codec.rows.values`)."""
    return schema_id_prefix(schema_id) + _ENCODE[row_format](row, schema.data_types)


def encode_values(batch: pa.RecordBatch, schema_id: int, schema: Schema, row_format: RowFormat) -> pa.Array:
    """Encode all rows of a record batch as a binary array; columns are matched by position."""
    components = row_components(batch, schema.data_types, row_format)
    prefix = np.frombuffer(schema_id_prefix(schema_id) * batch.num_rows, np.int16)
    return join([fixed_size(prefix), *components], batch.num_rows)


def value_schema_id(value: bytes | memoryview) -> int:
    """Read the schema id at the front of a value."""
    if len(value) < SCHEMA_ID_BYTES:
        raise CorruptRowError(f"a value of {len(value)} bytes has no schema id")
    (schema_id,) = _SCHEMA_ID.unpack_from(value)
    return int(schema_id)


class ValueReader:
    """Decodes values of any schema of a table to its schema `target_id`. Immutable after construction.

    `schemas` has the schemas by id; entries may be added when the table gets columns. Values with a newer id than the
    target's can be read too, without their newer columns.
    """

    def __init__(self, schemas: Mapping[int, Schema], target_id: int, row_format: RowFormat) -> None:
        self._schemas = schemas
        self.target = schemas[target_id]
        self.target_id = target_id
        self.row_format = row_format
        self._decode = _DECODE[row_format]
        self._mappings: dict[int, tuple[int, ...] | None] = {target_id: None}

    def row(self, value: bytes | memoryview) -> list[Any]:
        """Decode one value to logical values in the order of the target schema."""
        schema_id = value_schema_id(value)
        schema, mapping = self._schema(schema_id)
        return map_values(self._decode(byte_view(value)[SCHEMA_ID_BYTES:], schema.data_types), mapping)

    def columns(self, values: pa.Array, wanted: Collection[int] | None = None) -> list[pa.Array]:
        """Decode a binary array of values to Arrow columns. Columns whose position is not `wanted` may be all null."""
        count = len(values)
        if not count:
            return empty_columns(self.target.data_types)
        if values.null_count:
            raise CorruptRowError(f"a value must not be null, but {values.null_count} of {len(values)} are")
        data, offsets = binary_parts(values)
        starts, ends = offsets[:-1], offsets[1:]
        if (ends - starts < SCHEMA_ID_BYTES).any():
            shortest = int(np.min(ends - starts))
            raise CorruptRowError(f"a value must have at least {SCHEMA_ID_BYTES} bytes, its schema id, got {shortest}")
        ids = data.take(starts).astype(np.int16) | (data.take(starts + 1).astype(np.int16) << np.int16(8))
        view = memoryview(data)
        first = int(ids[0])
        if (ids == first).all():
            return self._group(view, starts, ends, first, wanted)
        order: list[Int64s] = []
        groups: list[list[pa.Array]] = []
        for schema_id in np.unique(ids).tolist():
            members = np.flatnonzero(ids == schema_id)
            order.append(members)
            groups.append(self._group(view, starts[members], ends[members], schema_id, wanted))
        back = pa.array(np.argsort(np.concatenate(order), kind="stable"))
        return [pa.concat_arrays(parts).take(back) for parts in zip(*groups, strict=True)]

    def _group(
        self, view: memoryview, starts: Int64s, ends: Int64s, schema_id: int, wanted: Collection[int] | None
    ) -> list[pa.Array]:
        schema, mapping = self._schema(schema_id)
        if wanted is not None and mapping is not None:
            wanted = {mapping[position] for position in wanted}
        columns = decode_rows(view, starts + SCHEMA_ID_BYTES, ends, schema.data_types, self.row_format, wanted)
        return map_columns(columns, mapping, self.target, len(starts))

    def _schema(self, schema_id: int) -> tuple[Schema, tuple[int, ...] | None]:
        schema = self._schemas.get(schema_id)
        if schema is None:
            raise CorruptRowError(f"a value has schema id {schema_id}, which the table does not have")
        if schema_id not in self._mappings:
            self._mappings[schema_id] = column_mapping(schema, self.target)
        return schema, self._mappings[schema_id]
