"""Every data type with values, as a table stores them and as Spark returns them.

Each entry: column name, Fluss type, three values as the client writes and reads them, Spark's type, and Spark's values
if they differ (digits that Spark does not have are cut).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

import fluss
from fluss import DataTypes
from fluss.codec.arrow.types import to_arrow_type
from fluss.model.types import DataType

UTC = dt.UTC
BEFORE_1970 = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)
DAY = dt.datetime(2026, 8, 1, 12, 30, 15)


@dataclass(frozen=True)
class TypeCase:
    """One column."""

    name: str
    data_type: DataType
    values: tuple[Any, ...]
    spark_type: str
    spark_values: tuple[Any, ...] | None = None

    @property
    def seen_by_spark(self) -> tuple[Any, ...]:
        return self.values if self.spark_values is None else self.spark_values


def nanos(text: str) -> int:
    """Nanoseconds since 1970 of a time with nine digits."""
    moment, _, digits = text.partition(".")
    whole = dt.datetime.fromisoformat(moment).replace(tzinfo=UTC)
    return int(whole.timestamp()) * 10**9 + int(digits)


CASES = [
    TypeCase("c_boolean", DataTypes.boolean(), (True, False, None), "boolean"),
    TypeCase("c_tinyint", DataTypes.tinyint(), (-128, 127, None), "tinyint"),
    TypeCase("c_smallint", DataTypes.smallint(), (-(2**15), 2**15 - 1, None), "smallint"),
    TypeCase("c_int", DataTypes.int(), (-(2**31), 2**31 - 1, None), "int"),
    TypeCase("c_bigint", DataTypes.bigint(), (-(2**63), 2**63 - 1, None), "bigint"),
    TypeCase("c_float", DataTypes.float(), (1.5, -0.0, None), "float"),
    TypeCase("c_double", DataTypes.double(), (1e300, float("-inf"), None), "double"),
    TypeCase("c_char", DataTypes.char(3), ("abc", "äöü", None), "string"),
    TypeCase("c_string", DataTypes.string(), ("", "Käse 🧀", None), "string"),
    TypeCase("c_binary", DataTypes.binary(2), (b"\x00\xff", b"ab", None), "binary"),
    TypeCase("c_bytes", DataTypes.bytes(), (b"", b"\x00" * 5, None), "binary"),
    TypeCase("c_decimal", DataTypes.decimal(10, 2), (Decimal("-12345678.90"), Decimal("0.01"), None), "decimal(10,2)"),
    TypeCase("c_decimal_wide", DataTypes.decimal(38, 18), (Decimal("9" * 20 + "." + "9" * 18), Decimal(0), None),
             "decimal(38,18)"),
    TypeCase("c_date", DataTypes.date(), (dt.date(1, 1, 1), dt.date(9999, 12, 31), None), "date"),
    TypeCase("c_time0", DataTypes.time(0), (dt.time(0), dt.time(23, 59, 59), None), "time(0)"),
    TypeCase("c_time3", DataTypes.time(3), (dt.time(1, 2, 3, 4000), dt.time(23, 59, 59, 999_000), None), "time(3)"),
    TypeCase("c_ts0", DataTypes.timestamp(0), (DAY, dt.datetime(1969, 12, 31), None), "timestamp_ntz"),
    TypeCase("c_ts3", DataTypes.timestamp(3), (DAY.replace(microsecond=123_000), DAY, None), "timestamp_ntz"),
    TypeCase("c_ts6", DataTypes.timestamp(6), (DAY.replace(microsecond=123_456), BEFORE_1970, None), "timestamp_ntz"),
    TypeCase("c_ts9", DataTypes.timestamp(9),
             (nanos("2026-08-01T12:30:15.123456789"), nanos("1969-12-31T23:59:59.999999001"), None), "timestamp_ntz",
             (DAY.replace(microsecond=123_456), BEFORE_1970, None)),
    TypeCase("c_ltz0", DataTypes.timestamp_ltz(0), (DAY.replace(tzinfo=UTC), None, None), "timestamp"),
    TypeCase("c_ltz3", DataTypes.timestamp_ltz(3), (DAY.replace(microsecond=5000, tzinfo=UTC), None, None),
             "timestamp"),
    TypeCase("c_ltz6", DataTypes.timestamp_ltz(6), (BEFORE_1970.replace(tzinfo=UTC), None, None), "timestamp"),
    TypeCase("c_ltz9", DataTypes.timestamp_ltz(9), (nanos("2026-08-01T12:30:15.123456789"), None, None), "timestamp",
             (DAY.replace(microsecond=123_456, tzinfo=UTC), None, None)),
    TypeCase("c_array", DataTypes.array(DataTypes.int()), ([1, None, 3], [], None), "array<int>"),
    TypeCase("c_array_not_null", DataTypes.array(DataTypes.string().not_null()), (["a", "b"], [], None),
             "array<string>"),
    TypeCase("c_map", DataTypes.map(DataTypes.string(), DataTypes.double()), ([("a", 1.5), ("b", None)], [], None),
             "map<string,double>"),
    TypeCase("c_row",
             DataTypes.row([
                 DataTypes.field("a", DataTypes.int().not_null()), DataTypes.field("b", DataTypes.string()),
             ]),
             ({"a": 1, "b": None}, {"a": 2, "b": "x"}, None), "struct<a:int,b:string>"),
    TypeCase("c_nested",
             DataTypes.array(DataTypes.row([
                 DataTypes.field("when", DataTypes.timestamp_ltz(3)),
                 DataTypes.field("tags", DataTypes.map(DataTypes.string(), DataTypes.array(DataTypes.bytes()))),
             ])),
             ([{"when": DAY.replace(tzinfo=UTC), "tags": [("k", [b"1", None])]}, None], [], None),
             "array<struct<when:timestamp,tags:map<string,array<binary>>>>"),
]  # fmt: skip


def plain(value: Any) -> Any:
    """Bring a value of `collect()` or of Arrow into one form: rows and maps as lists of pairs, points in time in UTC.

    Spark's own `toArrow` cannot be used here: it refuses a null struct that has a NOT NULL field.
    """
    if isinstance(value, Row):
        return [(name, plain(each)) for name, each in value.asDict().items()]
    if isinstance(value, dict):
        return [(key, plain(each)) for key, each in value.items()]
    if isinstance(value, tuple):
        return tuple(plain(each) for each in value)
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone().replace(tzinfo=None)
    return value


def table_schema(keyed: bool) -> fluss.Schema:
    """`id` and a column of every type; with `id` as the primary key if `keyed`."""
    builder = fluss.Schema.builder().column("id", DataTypes.int().not_null())
    for case in CASES:
        builder.column(case.name, case.data_type, f"the type {case.data_type}")
    return builder.primary_key(["id"]).build() if keyed else builder.build()


def arrow_rows() -> pa.RecordBatch:
    """The values as the table stores them."""
    arrays = [pa.array([0, 1, 2], pa.int32())]
    for case in CASES:
        arrow_type = to_arrow_type(case.data_type)
        plain = [isinstance(value, int) and pa.types.is_timestamp(arrow_type) for value in case.values]
        arrays.append(
            pa.array(case.values, pa.int64()).cast(arrow_type) if any(plain) else pa.array(case.values, arrow_type)
        )
    return pa.RecordBatch.from_arrays(arrays, names=["id", *(case.name for case in CASES)])
