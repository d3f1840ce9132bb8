"""Fluss types and Spark types.

| Fluss | Spark | note |
|---|---|---|
| BOOLEAN, TINYINT .. BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), DATE | the same | |
| CHAR(n), STRING | string | Python sources have no char(n) |
| BINARY(n), BYTES | binary | the length of a BINARY(n) is checked when writing |
| TIME(p) | time(p), at most time(6) | needs `spark.sql.timeType.enabled` for filters and casts |
| TIMESTAMP(p) | timestamp_ntz | microseconds: digits 7 to 9 are cut, or `nanosAs=bigint` |
| TIMESTAMP_LTZ(p) | timestamp | the same |
| ARRAY, MAP, ROW | array, map, struct | nullability of elements, values and fields is kept |

`fluss.spark.convert.arrow` converts Arrow data between the two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import types as spark

from fluss.errors import FlussError
from fluss.lake.tables.interface.format import BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss.lazy_imports import import_lock
from fluss.model import types as fluss
from fluss.model.properties import CHANGELOG_IMAGE, MERGE_ENGINE, property_value
from fluss.model.schema import Column
from fluss.spark.convert.arrow import check_types, for_spark, spark_arrow_schema
from fluss.spark.convert.column_names import chosen_columns

if TYPE_CHECKING:
    from fluss.client.engine.admin import TableInfo
    from fluss.spark.options.parsing import FlussOptions, NanosAs

__all__ = [
    "AFTER_COLUMN",
    "BEFORE_COLUMN",
    "CHANGELOG_FIELDS",
    "CHANGE_TYPE_COLUMN",
    "COMMIT_TIMESTAMP_COLUMN",
    "LOG_OFFSET_COLUMN",
    "check_types",
    "for_spark",
    "from_spark_schema",
    "from_spark_type",
    "source_schema",
    "spark_arrow_schema",
    "to_spark_schema",
    "to_spark_type",
]

MAX_SPARK_TIME_PRECISION = 6
MICROSECOND_PRECISION = 6

CHANGE_TYPE_COLUMN = "_change_type"
LOG_OFFSET_COLUMN = "_log_offset"
COMMIT_TIMESTAMP_COLUMN = "_commit_timestamp"
CHANGELOG_FIELDS = (
    spark.StructField(CHANGE_TYPE_COLUMN, spark.StringType(), False),
    spark.StructField(LOG_OFFSET_COLUMN, spark.LongType(), False),
    spark.StructField(COMMIT_TIMESTAMP_COLUMN, spark.TimestampType(), False),
)
"""Columns that precede the table's own in changelog mode, and the two rows in binlog mode."""
LAKE_FIELDS = (
    spark.StructField(BUCKET_COLUMN, spark.IntegerType(), False),
    spark.StructField(OFFSET_COLUMN, spark.LongType(), False),
    spark.StructField(TIMESTAMP_COLUMN, spark.TimestampType(), False),
)
"""Columns that follow the table's own in a lake table."""
BEFORE_COLUMN = "before"
AFTER_COLUMN = "after"

_SAME: dict[type[fluss.DataType], type[spark.DataType]] = {
    fluss.BooleanType: spark.BooleanType,
    fluss.TinyIntType: spark.ByteType,
    fluss.SmallIntType: spark.ShortType,
    fluss.IntType: spark.IntegerType,
    fluss.BigIntType: spark.LongType,
    fluss.FloatType: spark.FloatType,
    fluss.DoubleType: spark.DoubleType,
    fluss.CharType: spark.StringType,
    fluss.StringType: spark.StringType,
    fluss.BinaryType: spark.BinaryType,
    fluss.BytesType: spark.BinaryType,
    fluss.DateType: spark.DateType,
}


def to_spark_type(data_type: fluss.DataType, nanos_as: NanosAs = "microseconds") -> spark.DataType:
    """The Spark type of a Fluss type."""
    same = _SAME.get(type(data_type))
    if same is not None:
        return same()
    if isinstance(data_type, fluss.DecimalType):
        return spark.DecimalType(data_type.precision, data_type.scale)
    if isinstance(data_type, (fluss.TimeType, fluss.TimestampType, fluss.TimestampLtzType)):
        return _to_spark_time(data_type, nanos_as)
    if isinstance(data_type, fluss.ArrayType):
        return spark.ArrayType(to_spark_type(data_type.element, nanos_as), data_type.element.nullable)
    if isinstance(data_type, fluss.MapType):
        key, value = to_spark_type(data_type.key, nanos_as), to_spark_type(data_type.value, nanos_as)
        return spark.MapType(key, value, data_type.value.nullable)
    if isinstance(data_type, fluss.RowType):
        return spark.StructType([_to_spark_field(each, nanos_as) for each in data_type.fields])
    raise FlussError(f"the column type {data_type} has no corresponding Spark type")


def _to_spark_time(
    data_type: fluss.TimeType | fluss.TimestampType | fluss.TimestampLtzType, nanos_as: NanosAs
) -> spark.DataType:
    if data_type.precision > MICROSECOND_PRECISION and nanos_as == "bigint":
        return spark.LongType()
    if isinstance(data_type, fluss.TimeType):
        return spark.TimeType(min(data_type.precision, MAX_SPARK_TIME_PRECISION))
    return spark.TimestampNTZType() if isinstance(data_type, fluss.TimestampType) else spark.TimestampType()


def _to_spark_field(row_field: fluss.RowField, nanos_as: NanosAs) -> spark.StructField:
    metadata = {"comment": row_field.description} if row_field.description else None
    data_type = row_field.data_type
    return spark.StructField(row_field.name, to_spark_type(data_type, nanos_as), data_type.nullable, metadata)


def to_spark_schema(
    info: TableInfo, columns: Collection[str] | None = None, nanos_as: NanosAs = "microseconds"
) -> spark.StructType:
    """The Spark schema of a table, or of some of its columns in the given order; comments are kept."""
    fields = [
        _to_spark_field(fluss.RowField(column.name, column.data_type, column.comment), nanos_as)
        for column in info.schema.columns
    ]
    return chosen_fields(fields, columns, f"table {info.table_path}")


def chosen_fields(fields: Sequence[spark.StructField], columns: Collection[str] | None, owner: str) -> spark.StructType:
    """All fields, or those named by the option `columns`, in its order."""
    if columns is None:
        return spark.StructType(list(fields))
    known = {field.name: field for field in fields}
    return spark.StructType([known[name] for name in chosen_columns(columns, known, owner)])


def source_schema(info: TableInfo, options: FlussOptions) -> spark.StructType:
    """The schema of a read with these options if the user gives none."""
    if options.mode == "binlog":
        return _binlog_schema(info, options)
    if options.mode == "lake":
        return _lake_schema(info, options)
    if options.mode != "changelog":
        return to_spark_schema(info, options.columns, options.nanos_as)
    fields = [*CHANGELOG_FIELDS, *to_spark_schema(info, None, options.nanos_as).fields]
    return chosen_fields(fields, options.columns, f"table {info.table_path}")


def _lake_schema(info: TableInfo, options: FlussOptions) -> spark.StructType:
    """The columns of the lake table: those of the table, and three for the position of a row in the log."""
    if options.lake_view is not None:
        with import_lock:
            from fluss.spark.convert.lake_views import VIEW_SCHEMAS

        return chosen_fields(VIEW_SCHEMAS[options.lake_view].fields, options.columns, f"$lake${options.lake_view}")
    fields = [*to_spark_schema(info, None, options.nanos_as).fields, *LAKE_FIELDS]
    return chosen_fields(fields, options.columns, f"the lake table of {info.table_path}")


def _binlog_schema(info: TableInfo, options: FlussOptions) -> spark.StructType:
    """The columns about the change and both rows; raise for tables whose changelog has no old rows."""
    _check_old_rows(info)
    row = to_spark_schema(info, None, options.nanos_as)
    images = [spark.StructField(name, row, True) for name in (BEFORE_COLUMN, AFTER_COLUMN)]
    return chosen_fields([*CHANGELOG_FIELDS, *images], options.columns, "mode=binlog")


def _check_old_rows(info: TableInfo) -> None:
    if not info.has_primary_key():
        raise FlussError(
            f"table {info.table_path} has no primary key, so its rows never change and mode=binlog is not possible: "
            "use mode=changelog, or leave the mode out"
        )
    properties = info.get_properties()
    only_inserts = property_value(properties, MERGE_ENGINE) == "first_row"
    if property_value(properties, CHANGELOG_IMAGE) != "FULL" and not only_inserts:
        raise FlussError(
            f"table {info.table_path} has no old rows in its changelog ({CHANGELOG_IMAGE}=WAL), so mode=binlog "
            "cannot show them: use mode=changelog"
        )


# ---- from Spark, for tables that are created from a Spark schema ----

_SAME_BACK: dict[type[spark.DataType], type[fluss.DataType]] = {
    spark.BooleanType: fluss.BooleanType,
    spark.ByteType: fluss.TinyIntType,
    spark.ShortType: fluss.SmallIntType,
    spark.IntegerType: fluss.IntType,
    spark.LongType: fluss.BigIntType,
    spark.FloatType: fluss.FloatType,
    spark.DoubleType: fluss.DoubleType,
    spark.StringType: fluss.StringType,
    spark.VarcharType: fluss.StringType,
    spark.BinaryType: fluss.BytesType,
    spark.DateType: fluss.DateType,
}


def from_spark_type(data_type: spark.DataType, nullable: bool = True, where: str = "column") -> fluss.DataType:
    """The Fluss type of a Spark type; the `FlussError` for an unsupported type names the column or field (`where`)."""
    if isinstance(data_type, spark.StringType) and not data_type.isUTF8BinaryCollation():
        raise FlussError(
            f"{where} has the collation {data_type.collation}, which tables do not store: make it STRING, and name the "
            "collation in queries"
        )
    same = _SAME_BACK.get(type(data_type))
    if same is not None:
        return same(nullable=nullable)
    if isinstance(data_type, spark.CharType):
        return fluss.CharType(data_type.length, nullable=nullable)
    if isinstance(data_type, spark.DecimalType):
        return fluss.DecimalType(data_type.precision, data_type.scale, nullable=nullable)
    if isinstance(data_type, spark.TimestampNTZType):
        return fluss.TimestampType(MICROSECOND_PRECISION, nullable=nullable)
    if isinstance(data_type, spark.TimestampType):
        return fluss.TimestampLtzType(MICROSECOND_PRECISION, nullable=nullable)
    if isinstance(data_type, spark.TimeType):
        return fluss.TimeType(data_type.precision, nullable=nullable)
    if isinstance(data_type, spark.ArrayType):
        element = from_spark_type(data_type.elementType, data_type.containsNull, f"{where}, element")
        return fluss.ArrayType(element, nullable=nullable)
    if isinstance(data_type, spark.MapType):
        key = from_spark_type(data_type.keyType, False, f"{where}, key")
        value = from_spark_type(data_type.valueType, data_type.valueContainsNull, f"{where}, value")
        return fluss.MapType(key, value, nullable=nullable)
    if isinstance(data_type, spark.StructType):
        return fluss.RowType(tuple(_row_fields(data_type, where)), nullable=nullable)
    raise FlussError(f"{where} has the Spark type {data_type.simpleString()}, which tables do not have: cast it first")


def _row_fields(struct: spark.StructType, where: str) -> Iterable[fluss.RowField]:
    for each in struct.fields:
        data_type = from_spark_type(each.dataType, each.nullable, f"{where}, field {each.name!r}")
        yield fluss.RowField(each.name, data_type, each.metadata.get("comment"))


def from_spark_schema(schema: spark.StructType) -> tuple[Column, ...]:
    """The columns of a table with this Spark schema."""
    columns = []
    for each in schema.fields:
        data_type = from_spark_type(each.dataType, each.nullable, f"column {each.name!r}")
        columns.append(Column(each.name, data_type, each.metadata.get("comment")))
    return tuple(columns)
