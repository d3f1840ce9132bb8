"""What must come out for what went in, by the table of docs/values.md and nothing of ours: Python's own arithmetic.

A value is shown as a string that distinguishes what Python's == does not: -0.0 and 0.0, True and 1, zones.
"""

from __future__ import annotations

import datetime
import decimal
import struct
from typing import Any

import pyarrow as pa

from fluss.model import types as t

UTC = datetime.UTC
INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
FIRST_NANO, LAST_NANO = datetime.datetime(1677, 9, 21, 0, 12, 43, 145225), datetime.datetime(2262, 4, 11, 23, 47, 16)


class RefusedError(Exception):
    """The column cannot hold the value."""


def expected(value: Any, data_type: t.DataType, is_keyed: bool) -> Any:
    """What a reader gets, `RefusedError` if the column cannot hold it."""
    if value is None:
        if not data_type.nullable:
            raise RefusedError
        return None
    root = data_type.root
    if isinstance(data_type, t.ArrayType):
        _need(isinstance(value, list))
        return [expected(item, data_type.element, is_keyed) for item in value]
    if isinstance(data_type, t.MapType):
        _need(isinstance(value, list))
        key_type = data_type.key.not_null()
        return [(expected(k, key_type, is_keyed), expected(v, data_type.value, is_keyed)) for k, v in value]
    if isinstance(data_type, t.RowType):
        names = [field.name for field in data_type.fields]
        _need(isinstance(value, dict) and set(value) <= set(names))
        return {field.name: expected(value.get(field.name), field.data_type, is_keyed) for field in data_type.fields}
    if root == "BOOLEAN":
        _need(isinstance(value, bool))
        return value
    if root in INTEGER_BITS or root in ("FLOAT", "DOUBLE") or isinstance(data_type, t.DecimalType):
        return _number(value, data_type)
    if root in ("CHAR", "STRING"):
        _need(isinstance(value, str) and (not isinstance(data_type, t.CharType) or len(value) <= data_type.length))
        return value
    if root in ("BINARY", "BYTES"):
        _need(isinstance(value, bytes) and (not isinstance(data_type, t.BinaryType) or len(value) == data_type.length))
        return value
    return _time(value, data_type, is_keyed)


def _need(condition: bool) -> None:
    if not condition:
        raise RefusedError


def _number(value: Any, data_type: t.DataType) -> Any:
    _need(isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool))
    bits = INTEGER_BITS.get(data_type.root)
    if bits is not None:
        _need(value - value == 0 and value == int(value) and -(1 << bits - 1) <= value < 1 << bits - 1)
        return int(value)
    if isinstance(data_type, t.DecimalType):
        exact = decimal.Decimal(str(value))
        _need(exact.is_finite())
        try:
            context = decimal.Context(data_type.precision, traps=[decimal.Inexact, decimal.InvalidOperation])
            fitting = exact.quantize(decimal.Decimal(1).scaleb(-data_type.scale), context=context)
            return fitting or abs(fitting)  # there is one zero
        except decimal.DecimalException:
            raise RefusedError from None
    _need(not isinstance(value, decimal.Decimal))
    try:
        stored = float(value)
        if data_type.root == "FLOAT":
            stored = struct.unpack("<f", struct.pack("<f", stored))[0]
    except OverflowError:
        raise RefusedError from None
    _need(isinstance(value, float) or int(stored) == value)
    return stored


def _time(value: Any, data_type: t.DataType, is_keyed: bool) -> Any:
    if data_type.root == "DATE":
        if isinstance(value, datetime.datetime):
            _need(value.time() == datetime.time() and value.tzinfo is None and not _nanos(value))
            return value.date()
        _need(isinstance(value, datetime.date))
        return value
    precision = min(6, -(-getattr(data_type, "precision", 6) // 3) * 3)
    if isinstance(data_type, t.TimeType):
        _need(isinstance(value, datetime.time) and value.tzinfo is None)
        _need(value.microsecond % 10 ** (6 - min(precision, 3 if is_keyed else 6)) == 0)
        return value
    assert isinstance(data_type, t.TimestampType | t.TimestampLtzType)
    _need(isinstance(value, datetime.datetime))
    has_zone = isinstance(data_type, t.TimestampLtzType)
    _need(value.tzinfo is None or has_zone)
    moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    _need(moment.microsecond % 10 ** (6 - precision) == 0 and (data_type.precision > 6 or not _nanos(moment)))
    _need(data_type.precision <= 6 or FIRST_NANO <= moment <= LAST_NANO)
    return moment.replace(tzinfo=UTC) if has_zone else moment


def _nanos(moment: datetime.datetime) -> int:
    """A Timestamp of pandas counts nanoseconds as well."""
    return int(getattr(moment, "nanosecond", 0))


def shown(value: Any, *, digits: int = 9) -> str:
    """A string that differs where values do, at most `digits` (6 or 9) of a second included."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {shown(each, digits=digits)}' for name, each in value.items())}}}"
    if isinstance(value, list | tuple):
        items = ", ".join(shown(each, digits=digits) for each in value)
        return f"[{items}]" if isinstance(value, list) else f"({items})"
    if isinstance(value, datetime.datetime):
        nanos = _nanos(value) if digits == 9 else 0
        text = value.strftime("%Y-%m-%d %H:%M:%S.%f") + (f" and {nanos} ns" if nanos else "")
        return text if value.tzinfo is None else f"{text} at {value.utcoffset()}"
    return f"{type(value).__name__} {value!r}"


def plain_arrow_type(data_type: t.DataType) -> Any:
    """The Arrow type of a column."""
    root = data_type.root
    if isinstance(data_type, t.DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    unit = ("s", "ms", "us", "ns")[-(-getattr(data_type, "precision", 0) // 3)]
    if isinstance(data_type, t.ArrayType):
        return pa.list_(plain_arrow_type(data_type.element))
    if isinstance(data_type, t.MapType):
        return pa.map_(plain_arrow_type(data_type.key), plain_arrow_type(data_type.value))
    if isinstance(data_type, t.RowType):
        return pa.struct([(field.name, plain_arrow_type(field.data_type)) for field in data_type.fields])
    if isinstance(data_type, t.TimeType):
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    if isinstance(data_type, t.TimestampType | t.TimestampLtzType):
        return pa.timestamp(unit, "UTC" if isinstance(data_type, t.TimestampLtzType) else None)
    names = {"BOOLEAN": "bool", "FLOAT": "float32", "DOUBLE": "float64", "DATE": "date32", "BYTES": "binary"}
    if root in INTEGER_BITS:
        return pa.type_for_alias(f"int{INTEGER_BITS[root]}")
    if isinstance(data_type, t.BinaryType):
        return pa.binary(data_type.length)
    return pa.type_for_alias(names.get(root, "string"))
