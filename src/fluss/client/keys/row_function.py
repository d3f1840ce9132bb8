"""A generated function that reads one COMPACTED value of a known schema into a dict.

It does what `ValueReader.row` and a `dict` do, several times as fast, for the usual case: a valid value of the table's
own schema. For anything else, a value of another schema or invalid bytes, it returns None, and the caller takes the
complete path, which also reports what is wrong.

Offsets count from the schema id at the start of the value (`kv_values`). Strings are decoded strictly.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from fluss.codec.batches.kv_values import SCHEMA_ID_BYTES, schema_id_prefix
from fluss.codec.rows.values import FIXED_STRUCTS, NANOS_PER_MILLI
from fluss.codec.rows.varint import read_length, read_varint32, read_varint64
from fluss.generated_code import define
from fluss.model.schema import Schema
from fluss.model.types import DataType, DecimalType, TimestampLtzType, TimestampType

RowFunction = Callable[[bytes], "dict[str, Any] | None"]
Convert = Callable[[Any], object]

_VARINTS = {
    "INTEGER": "read_varint32",
    "DATE": "read_varint32",
    "BIGINT": "read_varint64",
}
_FIXED = ("TINYINT", "SMALLINT", "FLOAT", "DOUBLE")


def can_generate(schema: Schema) -> bool:
    """True if the function supports the types of all columns."""
    return all(_lines(data_type, 0) is not None for data_type in schema.data_types)


def row_function(schema: Schema, schema_id: int, converts: Sequence[Convert | None]) -> RowFunction:
    """The function for a schema that `can_generate` accepts; `converts` turn logical values into Python values."""
    start = SCHEMA_ID_BYTES + (len(schema.columns) + 7) // 8
    body = [f"if value[:{SCHEMA_ID_BYTES}] != prefix: return None", f"at = {start}"]
    for index, column in enumerate(schema.columns):
        lines = _lines(column.data_type, index)
        assert lines is not None
        is_null = f"value[{SCHEMA_ID_BYTES + (index >> 3)}] & {1 << (index & 7)}"
        body.append(f"if {is_null}: {f'v{index} = None' if column.data_type.nullable else 'return None'}")
        body.append("else:")
        body += ["    " + line for line in lines]
        if converts[index] is not None:
            body.append(f"    v{index} = convert{index}(v{index})")
    row = ", ".join(f"{column.name!r}: v{index}" for index, column in enumerate(schema.columns))
    body.append(f"return {{{row}}} if at == len(value) else None")
    source = "def read(value):\n    try:\n" + "".join(f"        {line}\n" for line in body)
    source += "    except errors:\n        return None\n"
    scope: dict[str, object] = {
        "prefix": schema_id_prefix(schema_id),
        "errors": (IndexError, ValueError, struct.error, OverflowError),
        "read_varint32": _of_bytes(read_varint32),
        "read_varint64": _of_bytes(read_varint64),
        "read_length": _of_bytes(read_length),
        **{f"unpack_{root}": FIXED_STRUCTS[root].unpack_from for root in _FIXED},
        **{f"convert{index}": convert for index, convert in enumerate(converts)},
    }
    # Names are quoted by repr; nothing else comes from users.
    function: RowFunction = define(source, scope, "one row of a lookup")["read"]
    return function


def _of_bytes(read: Callable[[memoryview, int], tuple[int, int]]) -> Callable[[bytes, int], tuple[int, int]]:
    return lambda value, at: read(memoryview(value), at)


def _lines(data_type: DataType, index: int) -> list[str] | None:
    """Source that sets the variable of a column and advances; None for types left to the complete path."""
    root, target = data_type.root, f"v{index}"
    if root in _VARINTS:
        return [
            f"{target} = value[at]",
            f"if {target} < 128: at += 1",
            f"else: {target}, at = {_VARINTS[root]}(value, at)",
        ]
    if root in _FIXED:
        size = FIXED_STRUCTS[root].size
        return [f"({target},) = unpack_{root}(value, at)", f"at += {size}"]
    if root == "BOOLEAN":
        return [f"{target} = value[at]", f"if {target} > 1: return None", f"{target} = {target} == 1", "at += 1"]
    if root in ("CHAR", "STRING", "BINARY", "BYTES"):
        decode = ".decode()" if root in ("CHAR", "STRING") else ""
        return [
            "size = value[at]",
            "if size < 128: at += 1",
            "else: size, at = read_length(value, at)",
            "end = at + size",
            "if end > len(value): return None",
            f"{target} = value[at:end]{decode}",
            "at = end",
        ]
    if isinstance(data_type, DecimalType) and data_type.is_compact:
        limit = 10**data_type.precision
        return [f"{target}, at = read_varint64(value, at)", f"if not {-limit} < {target} < {limit}: return None"]
    if isinstance(data_type, (TimestampType, TimestampLtzType)):
        if data_type.is_compact:
            return ["millis, at = read_varint64(value, at)", f"{target} = (millis, 0)"]
        return [
            "millis, at = read_varint64(value, at)",
            "nanos, at = read_varint32(value, at)",
            f"if not 0 <= nanos < {NANOS_PER_MILLI}: return None",
            f"{target} = (millis, nanos)",
        ]
    return None
