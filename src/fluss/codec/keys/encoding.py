"""Encodes keys as bytes: primary keys, bucket keys and prefix keys.

Four encodings: COMPACTED (fields of a COMPACTED row without null bits), PAIMON (an ALIGNED row), ICEBERG (one column,
the bytes that Iceberg hashes), HUDI (four bytes of a hash, for buckets only). The encoding of a table depends on its
lake format, even if the lake was never enabled; `key_plan` has the whole rule. Keys are encoded in the order of the
key definition, not of the schema, one at a time or for whole Arrow columns.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.codec.keys.java_strings import decimal_text, float_text, instant_text, local_date_time_text
from fluss.codec.rows.aligned import encode_aligned_row
from fluss.codec.rows.arrow_columns import as_column, from_big_unscaled, from_content, from_fixed, from_timestamps
from fluss.codec.rows.arrow_values import column_to_values
from fluss.codec.rows.block_encode import encode_aligned_columns
from fluss.codec.rows.column_buffers import fixed_size, join, null_mask
from fluss.codec.rows.compacted import read_compacted_field, write_compacted_field
from fluss.codec.rows.encode import compacted_field
from fluss.codec.rows.values import (
    BYTES_ROOTS,
    INT64,
    NESTED_ROOTS,
    TEXT_ROOTS,
    CorruptRowError,
    RowValueError,
    checked_int,
    checked_timestamp,
    checked_unscaled,
    pack_fixed,
    text_or_bytes,
    unscaled_to_bytes,
)
from fluss.model.types import DataType, DecimalType

KV_FORMAT_VERSION = 2
NO_BYTES = "a primary key must have at least one byte: with Iceberg keys it must not be an empty string"
_MICROS_PER_MILLI = 1000
_MASK = 0xFFFFFFFF
_HUDI_NULL = "__null__"
HUDI_RESERVED = frozenset({_HUDI_NULL, "__empty__"})
HUDI_SEPARATOR = ","
_ICEBERG_INT64_ROOTS = frozenset({"INTEGER", "BIGINT", "DATE", "TIME_WITHOUT_TIME_ZONE", "TIMESTAMP_WITHOUT_TIME_ZONE"})
_ICEBERG_ROOTS = _ICEBERG_INT64_ROOTS | {"FLOAT", "DOUBLE", "DECIMAL"} | TEXT_ROOTS | BYTES_ROOTS


class KeyEncoding(Enum):
    """The ways to encode key columns as bytes."""

    COMPACTED = "compacted"
    PAIMON = "paimon"
    ICEBERG = "iceberg"
    HUDI = "hudi"


_ENCODING_OF_LAKE_FORMAT = {
    None: KeyEncoding.COMPACTED,
    "lance": KeyEncoding.COMPACTED,
    "paimon": KeyEncoding.PAIMON,
    "iceberg": KeyEncoding.ICEBERG,
    "hudi": KeyEncoding.HUDI,
}


class KeyPlan(NamedTuple):
    """The columns and encodings of the keys of a table. Column names are in key order.

    `bucketing` names the bucket function: a lake format or None (see `bucketing.BUCKET_OF_LAKE_FORMAT`).
    """

    primary_columns: tuple[str, ...]
    primary_encoding: KeyEncoding
    bucket_columns: tuple[str, ...]
    bucket_encoding: KeyEncoding
    bucketing: str | None

    @property
    def bucket_key_is_primary_key(self) -> bool:
        """True if the primary key and the bucket key have the same bytes, so that they are encoded only once."""
        return self.primary_columns == self.bucket_columns and self.primary_encoding == self.bucket_encoding

    @property
    def can_look_up_by_prefix(self) -> bool:
        """True if the bucket key is a strict prefix of the primary key, both in columns and in bytes."""
        width = len(self.bucket_columns)
        return (
            0 < width < len(self.primary_columns)
            and self.primary_columns[:width] == self.bucket_columns
            and self.primary_encoding is KeyEncoding.COMPACTED
        )


def key_plan(
    primary_key: Sequence[str],
    partition_keys: Sequence[str],
    bucket_keys: Sequence[str],
    lake_format: str | None,
    kv_format_version: int = 1,
) -> KeyPlan:
    """Choose the columns and encodings of a table's keys. `lake_format` is `table.datalake.format`, in any case."""
    lake = lake_format.lower() if lake_format else None
    if lake not in _ENCODING_OF_LAKE_FORMAT:
        known = ", ".join(name for name in _ENCODING_OF_LAKE_FORMAT if name)
        raise RowValueError(f"unknown lake format {lake_format!r}; known are {known}")
    if not 1 <= kv_format_version <= KV_FORMAT_VERSION:
        raise RowValueError(f"unknown kv format version {kv_format_version}; known are 1 to {KV_FORMAT_VERSION}")
    physical = tuple(name for name in primary_key if name not in partition_keys)
    buckets = tuple(bucket_keys) or physical
    bucket_encoding = _ENCODING_OF_LAKE_FORMAT[lake]
    custom = kv_format_version >= 2 and buckets != physical
    lossy = bucket_encoding is KeyEncoding.HUDI  # different keys may have the same hash
    primary_encoding = KeyEncoding.COMPACTED if custom or lossy else bucket_encoding
    return KeyPlan(physical, primary_encoding, buckets, bucket_encoding, lake)


def encode_key(values: Sequence[object], types: Sequence[DataType], encoding: KeyEncoding) -> bytes:
    """Encode one key from its logical values, which are in the order of the key columns."""
    check_key_types(types, encoding)
    if len(values) != len(types):
        raise RowValueError(f"the key has {len(types)} columns, got {len(values)} values")
    for value, data_type in zip(values, types, strict=True):
        if value is None and (not data_type.nullable or encoding in (KeyEncoding.COMPACTED, KeyEncoding.ICEBERG)):
            raise RowValueError(f"a key column of type {data_type} must not be null")
    if encoding is KeyEncoding.PAIMON:
        return encode_aligned_row(values, types)
    if encoding is KeyEncoding.ICEBERG:
        return _iceberg_key(values[0], types[0])
    if encoding is KeyEncoding.HUDI:
        return _hudi_key(values, types)
    out = bytearray()
    for value, data_type in zip(values, types, strict=True):
        write_compacted_field(value, data_type, out)
    return bytes(out)


def decode_compacted_key(key: bytes | memoryview, types: Sequence[DataType]) -> list[object]:
    """Decode a COMPACTED key to its logical values; CorruptRowError unless the bytes are exactly one key."""
    view, position, values = memoryview(key).cast("B"), 0, []
    for data_type in types:
        value, position = read_compacted_field(view, position, data_type)
        values.append(value)
    if position != len(view):
        raise CorruptRowError(f"{len(view) - position} unexpected bytes after the last key column")
    return values


def encode_keys(columns: Sequence[pa.Array], types: Sequence[DataType], encoding: KeyEncoding, count: int) -> pa.Array:
    """Encode the keys of all rows as a binary array; `columns` are Arrow arrays in the order of the key columns.

    Hudi keys are hashes of values printed as strings, so they are made row by row.
    """
    check_key_types(types, encoding)
    if len(columns) != len(types):
        raise RowValueError(f"the key has {len(types)} columns, got {len(columns)} Arrow columns")
    if encoding is KeyEncoding.HUDI:
        rows = zip(*map(column_to_values, columns, types), strict=True)
        return pa.array([encode_key(row, types, encoding) for row in rows], pa.binary())
    for column, data_type in zip(columns, types, strict=True):
        refused = not data_type.nullable or encoding is not KeyEncoding.PAIMON
        if refused and null_mask(column) is not None:
            raise RowValueError(f"a key column of type {data_type} must not be null")
    if encoding is KeyEncoding.PAIMON:
        return encode_aligned_columns(columns, types, count)
    if encoding is KeyEncoding.ICEBERG:
        return _iceberg_keys(columns[0], types[0])
    components = [
        part for column, kind in zip(columns, types, strict=True) for part in compacted_field(column, kind, None)
    ]
    return components[0] if len(components) == 1 else join(components, count)


def check_stored_keys(keys: pa.Array) -> None:
    """Raise if a binary array has an empty key, which no store can keep."""
    if pc.any(pc.equal(pc.binary_length(keys), 0)).as_py():
        raise RowValueError(NO_BYTES)


def check_key_types(types: Sequence[DataType], encoding: KeyEncoding) -> None:
    """Raise unless columns of these types can form a key."""
    if not types:
        raise RowValueError("a key must have at least one column, got none")
    if encoding is KeyEncoding.ICEBERG and len(types) != 1:
        raise RowValueError(f"an Iceberg key must have exactly one column, got {len(types)}")
    for data_type in types:
        root = data_type.root
        refused = (
            root in NESTED_ROOTS
            or (encoding is KeyEncoding.ICEBERG and root not in _ICEBERG_ROOTS)
            or (encoding is KeyEncoding.HUDI and root in BYTES_ROOTS)
        )
        if refused:
            raise RowValueError(f"{data_type} cannot be a key column with the {encoding.value} key encoding")


def _iceberg_key(value: object, data_type: DataType) -> bytes:
    root = data_type.root
    if root in ("INTEGER", "DATE"):
        return INT64.pack(checked_int(value, data_type, -(2**31), 2**31 - 1))
    if root == "TIME_WITHOUT_TIME_ZONE":
        return INT64.pack(checked_int(value, data_type, -(2**31), 2**31 - 1) * _MICROS_PER_MILLI)
    if root == "TIMESTAMP_WITHOUT_TIME_ZONE":
        millis, nanos = checked_timestamp(value, data_type)
        try:
            return INT64.pack(millis * _MICROS_PER_MILLI + nanos // 1000)
        except struct.error:
            raise RowValueError(f"{data_type} {value!r} is too far from 1970 for microseconds") from None
    if root == "DECIMAL":
        return unscaled_to_bytes(checked_unscaled(value, data_type))
    if root in TEXT_ROOTS or root in BYTES_ROOTS:
        return text_or_bytes(value, data_type)
    return pack_fixed(value, data_type)


def _iceberg_keys(column: pa.Array, data_type: DataType) -> pa.Array:
    root = data_type.root
    column = as_column(column, data_type)
    if root == "TIMESTAMP_WITHOUT_TIME_ZONE":
        millis, nanos = from_timestamps(column)
        if (np.abs(millis) > (2**63 - 1) // _MICROS_PER_MILLI - 1).any():
            raise RowValueError(f"a {data_type} value is too far from 1970 for microseconds")
        return fixed_size(millis * _MICROS_PER_MILLI + nanos // 1000)
    if root in _ICEBERG_INT64_ROOTS:
        numbers = from_fixed(column, data_type).astype(np.int64)
        return fixed_size(numbers * _MICROS_PER_MILLI if root == "TIME_WITHOUT_TIME_ZONE" else numbers)
    if root == "DECIMAL":
        return from_big_unscaled(column, data_type)
    if root in TEXT_ROOTS or root in BYTES_ROOTS:
        return from_content(column, data_type)
    return fixed_size(from_fixed(column, data_type))


def _hudi_key(values: Sequence[object], types: Sequence[DataType]) -> bytes:
    """Java's `hashCode` of the list of the values as strings, big-endian, as in Hudi's own bucket index."""
    composite = len(types) > 1
    list_hash = 1
    for value, data_type in zip(values, types, strict=True):
        text = (None if composite else _HUDI_NULL) if value is None else _hudi_text(value, data_type)
        if composite and text is not None and (HUDI_SEPARATOR in text or text in HUDI_RESERVED):
            raise RowValueError(f"{text!r} is reserved: it cannot be part of a Hudi bucket key of several columns")
        list_hash = (31 * list_hash + (0 if text is None else _java_string_hash(text))) & _MASK
    return list_hash.to_bytes(4, "big")


def _java_string_hash(text: str) -> int:
    units = text.encode("utf-16-le")
    string_hash = 0
    for position in range(0, len(units), 2):
        string_hash = (31 * string_hash + units[position] + (units[position + 1] << 8)) & _MASK
    return string_hash


def _hudi_text(value: Any, data_type: DataType) -> str:
    root = data_type.root
    if root in TEXT_ROOTS:
        return str(text_or_bytes(value, data_type), "utf-8")
    if root == "DECIMAL":
        assert isinstance(data_type, DecimalType)
        return decimal_text(checked_unscaled(value, data_type), data_type.scale)
    if root == "TIMESTAMP_WITHOUT_TIME_ZONE":
        return _printed(local_date_time_text, checked_timestamp(value, data_type))
    if root == "TIMESTAMP_WITH_LOCAL_TIME_ZONE":
        return _printed(instant_text, checked_timestamp(value, data_type))
    pack_fixed(value, data_type)  # refuses values that the type cannot hold
    if root == "BOOLEAN":
        return "true" if value else "false"
    if root in ("FLOAT", "DOUBLE"):
        return float_text(value, root == "FLOAT")
    return str(value)


def _printed(text_of: Any, instant: tuple[int, int]) -> str:
    try:
        return str(text_of(*instant))
    except ValueError as error:
        raise RowValueError(str(error)) from None
