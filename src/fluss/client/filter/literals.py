"""Values of a filter in the two forms it needs: an Arrow scalar to compare columns with, a message for the server.

A value must have the column's type exactly. A number that the column cannot hold, or with more digits than it keeps, is
an error and not rounded, because the result of the filter would depend on the rounding. The exception is a float for a
FLOAT column, which is rounded as a stored value would be.
"""

from __future__ import annotations

import datetime
import decimal
import struct
from typing import Any

import numpy as np
import pyarrow as pa

from fluss.codec.arrow.types import to_arrow_type
from fluss.errors import FlussError
from fluss.model.schema import Column
from fluss.model.types import DecimalType
from fluss.protocol import fluss_api_pb2 as pb

MAX_LITERALS = 65_536

_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
_LITERAL_TYPES = {
    "BOOLEAN": 0,
    "TINYINT": 1,
    "SMALLINT": 2,
    "INTEGER": 3,
    "BIGINT": 4,
    "FLOAT": 5,
    "DOUBLE": 6,
    "CHAR": 7,
    "STRING": 8,
    "DECIMAL": 9,
    "DATE": 10,
    "TIME_WITHOUT_TIME_ZONE": 11,
    "TIMESTAMP_WITHOUT_TIME_ZONE": 12,
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": 13,
    "BINARY": 14,
    "BYTES": 15,
}
_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_DAY = datetime.date(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_UNIT_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_INT64 = range(-(2**63), 2**63)


def _refuse(column: Column, value: object, wanted: str) -> FlussError:
    return FlussError(
        f"filter: column {column.name!r} is {column.data_type}: compare it with {wanted}, got {_shown(value)}"
    )


def _shown(value: object) -> str:
    """A value for an error. Arrow prints scalars through Python types, which fail after the year 9999."""
    try:
        return repr(value)
    except (OverflowError, ValueError):
        return f"a {type(value).__name__}"


def check_text(column: Column, value: object, function: str) -> str:
    """The argument of a function that only string columns have."""
    if column.data_type.root not in ("CHAR", "STRING"):
        raise FlussError(f"filter: column {column.name!r} is {column.data_type}, {function} requires a string column")
    return _text(column, value)


def plain_value(column: Column, value: object) -> Any:
    """The value as the number, string or bytes of the column's type; `FlussError` if it does not fit.

    Decimals become their unscaled integer, dates days, times and timestamps nanoseconds.
    """
    root = column.data_type.root
    if getattr(value, "ndim", 0):
        raise FlussError(
            f"filter: column {column.name!r} can only be compared with one value, got {type(value).__name__}; "
            f"col({column.name!r}).is_in([...]) takes several"
        )
    if value is None or (isinstance(value, (datetime.datetime, np.datetime64)) and value != value):  # NaT
        raise FlussError(f"filter: nothing equals null; use col({column.name!r}).is_null() or .is_not_null()")
    if isinstance(value, np.datetime64) and root == "TIMESTAMP_WITHOUT_TIME_ZONE":
        return _in_whole_units(column, value, _numpy_nanos(column, value))
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()  # a NumPy scalar
    if root == "BOOLEAN":
        if not isinstance(value, bool):
            raise _refuse(column, value, "a bool")
        return value
    if root in _INTEGER_BITS:
        return _whole_number(column, value, _INTEGER_BITS[root])
    if root in ("FLOAT", "DOUBLE"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _refuse(column, value, "a float")
        return _float(value, root)
    if root in ("CHAR", "STRING"):
        return _text(column, value)
    if root in ("BINARY", "BYTES"):
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise _refuse(column, value, "bytes")
        return bytes(value)
    if isinstance(column.data_type, DecimalType):
        return _unscaled(column, value, column.data_type)
    return _moment(column, value, root)


def _text(column: Column, value: object) -> str:
    if not isinstance(value, str):
        raise _refuse(column, value, "a str")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refuse(column, value, "a str without lone surrogates") from None
    return value


def _whole_number(column: Column, value: object, bits: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refuse(column, value, "an int")
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise _refuse(column, value, f"an int of at most {bits} bits")
    return value


def _float(value: float, root: str) -> float:
    try:
        number = float(value)
        if root == "FLOAT":
            (number,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        number = float("inf") if value > 0 else float("-inf")
    return number


def _unscaled(column: Column, value: object, data_type: DecimalType) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, decimal.Decimal)):
        raise _refuse(column, value, "a decimal.Decimal")
    number = decimal.Decimal(value)
    if not number.is_finite():
        raise _refuse(column, value, "a finite number")
    with decimal.localcontext() as context:
        context.prec = 2 * (data_type.precision + abs(number.adjusted()) + len(number.as_tuple().digits)) + 10
        scaled = number.scaleb(data_type.scale)
        if scaled != scaled.to_integral_value():
            raise _refuse(column, value, f"at most {data_type.scale} digits after the point")
        unscaled = int(scaled)
    if abs(unscaled) >= 10**data_type.precision:
        raise _refuse(column, value, f"a number of at most {data_type.precision} digits")
    return unscaled


def _moment(column: Column, value: object, root: str) -> int:
    if root == "DATE":
        if isinstance(value, datetime.datetime) or not isinstance(value, datetime.date):
            raise _refuse(column, value, "a datetime.date")
        return (value - _EPOCH_DAY).days
    if root == "TIME_WITHOUT_TIME_ZONE":
        if not isinstance(value, datetime.time) or value.tzinfo is not None:
            raise _refuse(column, value, "a datetime.time")
        micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        return _in_whole_units(column, value, micros * 1_000)
    if root == "TIMESTAMP_WITHOUT_TIME_ZONE":
        if not isinstance(value, datetime.datetime) or value.tzinfo is not None:
            raise _refuse(column, value, "a naive datetime.datetime")
        return _in_whole_units(column, value, _nanos_since(_EPOCH, value))
    if root == "TIMESTAMP_WITH_LOCAL_TIME_ZONE":
        if not isinstance(value, datetime.datetime) or value.tzinfo is None:
            raise _refuse(column, value, "a datetime.datetime with a time zone")
        return _in_whole_units(column, value, _nanos_since(_EPOCH_UTC, value))
    raise FlussError(f"filter: column {column.name!r} is {column.data_type}, which cannot be compared")


def _nanos_since(epoch: datetime.datetime, value: datetime.datetime) -> int:
    """Nanoseconds since an epoch, also of a `pandas.Timestamp`, whose own subtraction has narrower limits."""
    micros = datetime.datetime.__sub__(value, epoch) // _MICROSECOND
    return micros * 1_000 + int(getattr(value, "nanosecond", 0))


def _numpy_nanos(column: Column, value: np.datetime64) -> int:
    for unit in ("us", "ns"):
        same = value.astype(f"M8[{unit}]")
        if same == value:
            return int(same.astype(np.int64)) * _UNIT_NANOS[unit]
    raise _refuse(column, value, "a value in whole ns")


def _in_whole_units(column: Column, value: object, nanos: int) -> int:
    unit = to_arrow_type(column.data_type).unit
    if nanos % _UNIT_NANOS[unit]:
        raise _refuse(column, value, f"a value in whole {unit}")
    if nanos // _UNIT_NANOS[unit] not in _INT64:
        raise _refuse(column, value, "a time between the years 1678 and 2261, which nanoseconds can hold")
    return nanos


def arrow_literal(column: Column, value: object) -> pa.Scalar:
    """A scalar of the column's Arrow type."""
    plain = plain_value(column, value)
    arrow_type = to_arrow_type(column.data_type)
    if isinstance(column.data_type, DecimalType):
        with decimal.localcontext() as context:
            context.prec = column.data_type.precision + 2
            return pa.scalar(decimal.Decimal(plain).scaleb(-column.data_type.scale), arrow_type)
    if pa.types.is_date(arrow_type):
        return pa.scalar(plain, pa.int32()).cast(arrow_type)
    if pa.types.is_time(arrow_type) or pa.types.is_timestamp(arrow_type):
        number = plain // _UNIT_NANOS[arrow_type.unit]
        return pa.scalar(number, pa.int32() if arrow_type.bit_width == 32 else pa.int64()).cast(arrow_type)
    return pa.scalar(plain, arrow_type)


def wire_literal(column: Column, value: object) -> pb.PbLiteralValue:
    """The message form; the type number is that of the column."""
    root = column.data_type.root
    plain = plain_value(column, value)
    literal = pb.PbLiteralValue(literal_type=_LITERAL_TYPES[root], is_null=False)
    if root == "BOOLEAN":
        literal.boolean_value = plain
    elif root in ("TINYINT", "SMALLINT", "INTEGER"):
        literal.int_value = plain
    elif root == "TIME_WITHOUT_TIME_ZONE":
        literal.int_value = plain // 1_000_000
    elif root in ("BIGINT", "DATE"):
        literal.bigint_value = plain
    elif root == "FLOAT":
        literal.float_value = plain
    elif root == "DOUBLE":
        literal.double_value = plain
    elif root in ("CHAR", "STRING"):
        literal.string_value = plain
    elif root in ("BINARY", "BYTES"):
        literal.binary_value = plain
    elif isinstance(column.data_type, DecimalType):
        if column.data_type.is_compact:
            literal.decimal_value = plain
        else:
            literal.decimal_bytes = plain.to_bytes(plain.bit_length() // 8 + 1, "big", signed=True)
    else:
        literal.timestamp_millis_value = plain // 1_000_000
        literal.timestamp_nano_of_millis_value = plain % 1_000_000
    return literal
