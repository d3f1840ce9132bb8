"""Values of partition columns, converted between the strings of servers and the rows of Spark in our Java catalog.

The values in Spark's rows travel as JSON (`PartitionValues.java`):

| Fluss | JSON |
|---|---|
| BOOLEAN, TINYINT .. BIGINT, CHAR(n), STRING | the same |
| FLOAT, DOUBLE | from Spark a number, or a string for NaN and infinity; to Spark a string |
| BINARY(n), BYTES | string, Base64 |
| DATE | days since 1970 |
| TIME(p) | nanoseconds of the day |
| TIMESTAMP(p), TIMESTAMP_LTZ(p) | microseconds since 1970; nanoseconds where `nanosAs=bigint` makes them a BIGINT |

Digits of a second that Spark cannot hold are cut on the way to Spark. Nothing is cut on the way back: a value that a
partition cannot have is an error.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fluss.codec.keys.partition_names import partition_value_text
from fluss.codec.keys.partition_values import partition_value
from fluss.codec.rows.values import BYTES_ROOTS, TIMESTAMP_ROOTS
from fluss.errors import FlussError
from fluss.lazy_imports import import_lock
from fluss.model.types import DataType

if TYPE_CHECKING:
    from fluss.client.engine.admin import TableInfo
    from fluss.spark.options.parsing import NanosAs

_FLOAT_ROOTS = frozenset({"FLOAT", "DOUBLE"})
_TIME_ROOT = "TIME_WITHOUT_TIME_ZONE"
_NANOS_PER_MICROSECOND = 1_000
_NANOS_PER_MILLISECOND = 1_000_000


def texts_from_json(info: TableInfo, values: Mapping[str, object], nanos_as: NanosAs) -> dict[str, str]:
    """The strings by which the server names the partitions with these values."""
    types = {column.name: column.data_type for column in info.schema.columns}
    texts = {}
    for key, value in values.items():
        try:
            texts[key] = partition_value_text(_logical(value, types[key], nanos_as), types[key])
        except ValueError as error:
            raise FlussError(f"partition column {key!r} of {info.table_path}: {error}") from None
    return texts


def values_to_json(info: TableInfo, texts: Mapping[str, str], nanos_as: NanosAs) -> list[object]:
    """The values of one partition, in the order of the partition columns."""
    types = {column.name: column.data_type for column in info.schema.columns}
    try:
        return [
            _for_spark(partition_value(texts[key], types[key]), types[key], nanos_as) for key in info.partition_keys
        ]
    except ValueError as error:
        raise FlussError(f"a partition of {info.table_path} cannot be converted for Spark: {error}") from None


def _logical(value: Any, data_type: DataType, nanos_as: NanosAs) -> object:
    """Return the logical value (`fluss.codec.rows.values`) of a JSON value."""
    root = data_type.root
    if value is None:
        return None
    if root in _FLOAT_ROOTS:
        return float(value)
    if root in BYTES_ROOTS:
        return base64.b64decode(value)
    if root == _TIME_ROOT:
        millis, rest = divmod(value, _NANOS_PER_MILLISECOND)
        if rest:
            raise ValueError(f"partitions have times in milliseconds, but {value} ns has more digits")
        return millis
    if root in TIMESTAMP_ROOTS:
        return divmod(value * _nanos_per_unit(data_type, nanos_as), _NANOS_PER_MILLISECOND)
    return value


def _for_spark(value: Any, data_type: DataType, nanos_as: NanosAs) -> object:
    root = data_type.root
    if root in _FLOAT_ROOTS:
        return _java_float(value)
    if root in BYTES_ROOTS:
        return base64.b64encode(value).decode("ascii")
    if root == _TIME_ROOT:
        return value * _NANOS_PER_MILLISECOND
    if root in TIMESTAMP_ROOTS:
        millis, nanos = value
        return (millis * _NANOS_PER_MILLISECOND + nanos) // _nanos_per_unit(data_type, nanos_as)
    return value


def _java_float(value: float) -> str:
    """The value as a string that Java's `Double.parseDouble` accepts."""
    if math.isnan(value):
        return "NaN"
    return repr(value).replace("inf", "Infinity")


def _nanos_per_unit(data_type: DataType, nanos_as: NanosAs) -> int:
    from pyspark.sql.types import LongType

    with import_lock:
        from fluss.spark.convert.types import to_spark_type

    return 1 if isinstance(to_spark_type(data_type, nanos_as), LongType) else _NANOS_PER_MICROSECOND
