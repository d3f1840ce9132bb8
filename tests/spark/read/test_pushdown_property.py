"""Random conditions on random rows: pushed filters give the same result as Spark for every single row."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, SparkSession, functions
from pyspark.sql import datasource as filters
from pyspark.sql.types import StructField, StructType

from fluss.client.filter.filters import RowFilter
from fluss.codec.arrow.types import to_arrow_schema
from fluss.model import schema as model
from fluss.model import types
from fluss.spark.convert.arrow import for_spark, spark_arrow_schema
from fluss.spark.convert.types import to_spark_type
from fluss.spark.read.pushdown import push
from tests.support.runner.lanes import rounds

ROWS = 150
CONDITIONS = rounds(gate=100, all_lanes=400)
SEED = 20260816
UTC = datetime.UTC

VALUES: dict[str, tuple[types.DataType, list[Any]]] = {
    "flag": (types.BooleanType(), [True, False]),
    "tiny": (types.TinyIntType(), [-128, -1, 0, 1, 127]),
    "small": (types.SmallIntType(), [-32768, 0, 5, 32767]),
    "number": (types.IntType(), [-(2**31), -7, 0, 7, 2**31 - 1]),
    "big": (types.BigIntType(), [-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1]),
    "single": (types.FloatType(), [float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 0.5, -2.25]),
    "double": (types.DoubleType(), [float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 0.1, 1e300]),
    "text": (types.StringType(), ["", "a", "ab", "abc", "b", "é", "z%", "\U0001f600", "Ab"]),
    "fixed": (types.CharType(3), ["abc", "abd", "xyz"]),
    "raw": (types.BytesType(), [b"", b"\x00", b"a", b"ab", b"\xff"]),
    "bits": (types.BinaryType(2), [b"ab", b"\x00\xff", b"\xff\x00"]),
    "price": (types.DecimalType(10, 2), [Decimal("-99999999.99"), Decimal("0.00"), Decimal("1.50"), Decimal("1.51")]),
    "huge": (types.DecimalType(38, 5), [Decimal("-1.00000"), Decimal("12345678901234567890123456789.12345")]),
    "day": (types.DateType(), [datetime.date(1900, 1, 1), datetime.date(1969, 12, 31), datetime.date(2026, 8, 16)]),
    "local": (
        types.TimestampType(6),
        [datetime.datetime(1960, 1, 1, 0, 0, 0, 1), datetime.datetime(2026, 8, 16, 1, 2, 3, 4)],
    ),
    "coarse": (types.TimestampType(3), [datetime.datetime(2026, 8, 16, 1, 2, 3, 4000), datetime.datetime(1970, 1, 1)]),
    "instant": (
        types.TimestampLtzType(6),
        [datetime.datetime(2026, 8, 16, 1, 2, 3, 4, UTC), datetime.datetime(1960, 1, 1, tzinfo=UTC)],
    ),
}
COMPARISONS: list[tuple[type[filters.Filter], Callable[[Column, Any], Column]]] = [
    (filters.EqualTo, lambda column, value: column == value),
    (filters.EqualNullSafe, lambda column, value: column.eqNullSafe(value)),
    (filters.LessThan, lambda column, value: column < value),
    (filters.LessThanOrEqual, lambda column, value: column <= value),
    (filters.GreaterThan, lambda column, value: column > value),
    (filters.GreaterThanOrEqual, lambda column, value: column >= value),
]
TEXTS: list[tuple[type[filters.Filter], Callable[[Column, Any], Column]]] = [
    (filters.StringStartsWith, lambda column, value: column.startswith(value)),
    (filters.StringEndsWith, lambda column, value: column.endswith(value)),
    (filters.StringContains, lambda column, value: column.contains(value)),
]


def random_condition(rng: random.Random) -> tuple[Any, Column]:
    """The same condition as a filter of a source and as a Spark column."""
    name = rng.choice(list(VALUES))
    data_type, values = VALUES[name]
    spark_type = to_spark_type(data_type)
    column = functions.col(name)

    def literal(value: Any) -> Column:
        # PySpark would read it in the zone of this machine; that of the session is UTC.
        if isinstance(value, datetime.datetime) and value.tzinfo is None:
            value = value.replace(tzinfo=UTC)
        return functions.lit(value).cast(spark_type)

    kind = rng.random()
    condition: Any
    if kind < 0.1:
        condition, meaning = filters.IsNull((name,)), column.isNull()
    elif kind < 0.25:
        chosen = tuple(rng.sample(values, rng.randint(1, len(values))))
        condition, meaning = filters.In((name,), chosen), column.isin([literal(value) for value in chosen])
    elif kind < 0.4 and name in ("text", "fixed"):
        make, say = rng.choice(TEXTS)
        value = rng.choice(["", "a", "b", "ab", "é", "%"])
        condition, meaning = make((name,), value), say(column, value)  # type: ignore[call-arg]
    else:
        make, say = rng.choice(COMPARISONS)
        value = rng.choice(values)
        condition, meaning = make((name,), value), say(column, literal(value))  # type: ignore[call-arg]
    return (filters.Not(condition), ~meaning) if rng.random() < 0.3 else (condition, meaning)


def test_conditions_have_the_same_result_as_in_spark(spark: SparkSession) -> None:
    rng = random.Random(SEED)
    schema = model.Schema(
        tuple(
            model.Column(name, data_type, column_id=number)
            for number, (name, (data_type, _)) in enumerate(VALUES.items())
        )
    )
    arrow_schema = to_arrow_schema(schema)
    columns = [
        pa.array([rng.choice([None, *values]) for _ in range(ROWS)], arrow_schema.field(name).type)
        for name, (_, values) in VALUES.items()
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema)
    spark_schema = StructType([StructField(name, to_spark_type(data_type)) for name, (data_type, _) in VALUES.items()])
    converted = for_spark(batch, spark_arrow_schema(spark_schema))
    frame = spark.createDataFrame(pa.Table.from_batches([converted]), spark_schema)
    made = [random_condition(rng) for _ in range(CONDITIONS)]
    answers = frame.select([meaning.alias(str(number)) for number, (_, meaning) in enumerate(made)]).toArrow()

    arrays = {column.column_id: array for column, array in zip(schema.columns, columns, strict=True)}
    taken = 0
    for number, (condition, _) in enumerate(made):
        pushed = push([condition], schema, schema.column_names)
        if pushed.refused:
            continue
        taken += 1
        assert pushed.predicate is not None
        ours = RowFilter(pushed.predicate, schema).mask(arrays.__getitem__).to_pylist()
        theirs = answers.column(number).to_pylist()
        assert [bool(value) for value in ours] == [bool(value) for value in theirs], condition
    assert taken > CONDITIONS * 0.8, "most conditions are taken"
