"""Makes the names of partitions from their values, as Java does.

The name of a partition is its values as strings, in the order of the partition keys, joined with `$`. Nothing is
escaped, so the server accepts only letters, digits, `_` and `-` in a value; numbers and times are printed so that they
fit (`.` becomes `_`).

pyfluss 1.0 differs in two cases: a timestamp with milliseconds but no finer digits always ends in three digits (`_500`,
in Java `_5`), and a float without a fraction is printed without one (`1`, in Java `1_0`).

>>> from fluss.model.types import DateType, StringType
>>> partition_name(["eu", 20235], [StringType(), DateType()])
'eu$2025-05-27'
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fluss.codec.keys.java_strings import float_text, instant_of, nanos_of_second
from fluss.codec.rows.arrow_values import column_to_values
from fluss.codec.rows.values import MAX_TIME_MILLIS, RowValueError, checked_int, checked_timestamp
from fluss.model.types import DataType

SEPARATOR = "$"
MAX_VALUE_CHARACTERS = 200
RESERVED_PREFIX = "__"
_ALLOWED = re.compile(r"[A-Za-z0-9_-]+")
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}


def partition_value_text(value: object, data_type: DataType) -> str:
    """The string that a partition name has for a value in logical form (`codec.rows.values`)."""
    root = data_type.root
    if value is None:
        raise RowValueError("a partition value must not be null")
    if root in ("CHAR", "STRING"):
        return str(_checked(value, str, data_type))
    if root == "BOOLEAN":
        return "true" if _checked(value, bool, data_type) else "false"
    if root in _INTEGER_BITS:
        limit = 1 << (_INTEGER_BITS[root] - 1)
        return str(checked_int(value, data_type, -limit, limit - 1))
    if root in ("BINARY", "BYTES"):
        content: bytes = _checked(value, bytes, data_type)
        return content.hex()
    if root == "DATE":
        return _date_text(checked_int(value, data_type, -(2**31), 2**31 - 1))
    if root == "TIME_WITHOUT_TIME_ZONE":
        return _time_text(checked_int(value, data_type, 0, MAX_TIME_MILLIS))
    if root in ("FLOAT", "DOUBLE"):
        return _float_text(_checked(value, float, data_type), root == "FLOAT")
    if root in ("TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE"):
        return _timestamp_text(*checked_timestamp(value, data_type))
    raise RowValueError(f"{data_type} cannot be the type of a partition column")


def _checked(value: object, kind: type, data_type: DataType) -> Any:
    if not isinstance(value, kind):
        raise RowValueError(f"{data_type} cannot hold {value!r}")
    return value


def _date_text(days: int) -> str:
    try:
        return datetime.date.fromordinal(days + _EPOCH_DAY).isoformat()
    except (ValueError, OverflowError):
        raise RowValueError(f"day {days} since 1970 is outside the years 1 to 9999") from None


def _time_text(millis: int) -> str:
    seconds, millis = divmod(millis, 1000)
    minutes, seconds = divmod(seconds, 60)
    return f"{minutes // 60:02d}-{minutes % 60:02d}-{seconds:02d}_{millis:03d}"


def _float_text(value: float, single: bool) -> str:
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return float_text(value, single).replace(".", "_")


def _timestamp_text(millis: int, nanos: int) -> str:
    try:
        when = instant_of(millis)
    except ValueError as error:
        raise RowValueError(str(error)) from None
    fraction = f"{nanos_of_second(millis, nanos):09d}".rstrip("0")
    date_and_time = when.isoformat().replace("T", "-").replace(":", "-")
    return f"{date_and_time}_{fraction}"


def partition_name(values: Sequence[Any], types: Sequence[DataType]) -> str:
    """The name of the partition with these values, in the order of the partition keys."""
    if not types or len(values) != len(types):
        raise RowValueError(f"the table has {len(types)} partition keys, got {len(values)} values")
    return SEPARATOR.join(map(partition_value_text, values, types))


def partition_names(columns: Sequence[pa.Array], types: Sequence[DataType]) -> pa.Array:
    """The names of the partitions of all rows, as an Arrow string array; each distinct value is printed once."""
    if not types or len(columns) != len(types):
        raise RowValueError(f"the table has {len(types)} partition keys, got {len(columns)} columns")
    texts = []
    for column, data_type in zip(columns, types, strict=True):
        if column.null_count:
            raise RowValueError(f"a partition value must not be null, but {column.null_count} of {len(column)} are")
        encoded = column.dictionary_encode()
        distinct = [partition_value_text(value, data_type) for value in column_to_values(encoded.dictionary, data_type)]
        texts.append(pa.array(distinct, pa.string()).take(encoded.indices))
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, SEPARATOR)


def split_partition_name(name: str, keys: Sequence[str]) -> dict[str, str]:
    """The values that a partition name consists of, by partition key."""
    parts = name.split(SEPARATOR)
    if len(parts) != len(keys):
        raise ValueError(f"partition name {name!r} has {len(parts)} values, but the keys are {', '.join(keys)}")
    return dict(zip(keys, parts, strict=True))


def qualified_name(name: str, keys: Sequence[str]) -> str:
    """A partition name with its keys, as shown in messages: `k1=v1/k2=v2`."""
    return "/".join(f"{key}={value}" for key, value in split_partition_name(name, keys).items())


def check_partition_value(text: str, creating: bool) -> None:
    """Raise ValueError for a value that servers do not accept in a partition name."""
    if not 1 <= len(text) <= MAX_VALUE_CHARACTERS:
        raise ValueError(f"a partition value must have 1 to {MAX_VALUE_CHARACTERS} characters, got {text!r}")
    if not _ALLOWED.fullmatch(text):
        raise ValueError(f"partition value {text!r} must contain only letters, digits, '_' and '-'")
    if creating and text.startswith(RESERVED_PREFIX):
        raise ValueError(f"partition value {text!r} must not start with {RESERVED_PREFIX!r}, which is reserved")
