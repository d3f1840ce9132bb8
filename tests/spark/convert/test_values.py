"""Values from Spark are stored equal or refused, never changed, with the same result as from Arrow data.

Each round draws a schema and rows for it, which are written at once; other rows are written by the client, and rows
with one value of any kind, in the type that Spark gives it, are written alone. `tests.support.values.oracle` and the
table of docs/values.md have the expected results. A case is a row that is given to Spark.
"""

from __future__ import annotations

import datetime
import decimal
import random
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

import fluss
from fluss.client.input.arrow_input import ArrowInput
from fluss.errors import FlussError
from fluss.model import types as t
from fluss.model.schema import Column, Schema
from fluss.spark.convert.types import spark_arrow_schema, to_spark_type
from tests.contract.test_values_differential import FRAMES, WAYS, column_of
from tests.spark.conftest import Tables, new_tables
from tests.support.runner.lanes import seed
from tests.support.servers.targets import running_target
from tests.support.values.documented_values import differences
from tests.support.values.oracle import RefusedError, expected, shown
from tests.support.values.random_values import drawn, drawn_schema, drawn_value

GATE_ROWS, GATE_ALONE, BY_CLIENT = 48, 2, 12
SOAK_CASES = 20_000
INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
COLUMN_WORDS = {**dict.fromkeys(INTEGERS, "integers"), "TIMESTAMP_WITH_LOCAL_TIME_ZONE": "TIMESTAMP_LTZ"}
Row = dict[str, Any]


@pytest.fixture
def tables(spark: SparkSession) -> Iterator[Tables]:
    yield from new_tables(running_target("embedded"), spark)


class Drawn:
    """A table of a drawn schema."""

    def __init__(self, tables: Tables, rng: random.Random, is_keyed: bool) -> None:
        self.tables, self.is_keyed = tables, is_keyed
        self.columns, self.key = drawn_schema(rng)
        self.name = f"t_{uuid.uuid4().hex[:12]}"
        builder = fluss.Schema.builder()
        for name, data_type in self.columns.items():
            builder = builder.column(name, data_type)
        tables.create(self.name, (builder.primary_key(*self.key) if is_keyed else builder).build(), bucket_count=1)
        fields = [StructField(name, to_spark_type(each), each.nullable) for name, each in self.columns.items()]
        self.arrow_schema = spark_arrow_schema(StructType(fields))
        self.wanted: list[Row] = []

    def expected(self, row: Row) -> Row:
        return {name: expected(row[name], each, self.is_keyed) for name, each in self.columns.items()}

    def write(self, rows: list[Row], strange: str | None = None) -> None:
        columns = [
            pa.array([row[field.name] for row in rows], None if field.name == strange else field.type)
            for field in self.arrow_schema
        ]
        table = pa.table(columns, list(self.columns))
        types = [
            StructField(field.name, from_arrow_type(field.type, prefer_timestamp_ntz=True)) for field in table.schema
        ]
        frame = self.tables.spark.createDataFrame(table, StructType(types))
        self.tables.write(frame.coalesce(1), self.name)
        self.wanted += map(self.expected, rows)

    def write_by_client(self, way: str, rows: list[Row]) -> None:
        """Write rows by the client, which Spark reads too."""
        given: Any = rows
        if way != "rows":
            columns = {name: column_of(way, [row[name] for row in rows], each) for name, each in self.columns.items()}
            given = FRAMES[way](columns)
        db = self.tables.db
        (db.upsert if self.is_keyed else db.append)(self.tables.path(self.name), given)
        self.wanted += map(self.expected, rows)

    def write_alone(self, row: Row, name: str) -> None:
        """Write one row, with the result of the oracle and of Arrow; the document lists where Spark differs."""
        data_type, value = self.columns[name], row[name]
        column = COLUMN_WORDS.get(data_type.root, data_type.root)
        try:
            self.expected(row)
            fits = differences("Spark").get((kind_of(value), column)) != "refused"
        except RefusedError:
            fits = False
        if fits:
            by_arrow = ArrowInput("t", Schema((Column("c", data_type),)))
            by_arrow.conform(pa.record_batch({"c": pa.array([value])}))
            self.write([row], name)
            return
        with pytest.raises((PySparkException, FlussError), match=f"column '{name}' (expects|is) "):
            self.write([row], name)

    def check(self) -> None:
        """Check the rows of the client and of Spark."""
        wanted = self.wanted
        if self.is_keyed:  # the last row of each key
            wanted = list({shown([row[name] for name in self.key]): row for row in wanted}.values())
        same_rows(self.tables.contents(self.name).to_pylist(), wanted)
        same_rows(self.tables.read(self.name).toArrow().to_pylist(), wanted)


def kind_of(value: Any) -> str:
    """The name of the kind in the document, for kinds where Spark differs."""
    if isinstance(value, datetime.datetime):
        return "timestamp" if value.tzinfo is None else "zoned timestamp"
    return "decimal" if isinstance(value, decimal.Decimal) else type(value).__name__


def same_rows(found: Iterable[Row], wanted: Iterable[Row]) -> None:
    assert sorted(map(shown, found)) == sorted(map(shown, wanted))


def one_round(tables: Tables, rng: random.Random, is_keyed: bool, together: int, alone: int) -> int:
    """Run one round; return the number of rows that Spark wrote, or was refused."""
    table = Drawn(tables, rng, is_keyed)
    rows = [{name: drawn_value(rng, each) for name, each in table.columns.items()} for _ in range(together)]
    table.write(rows)
    for way in WAYS:
        rows = [{name: drawn_value(rng, each) for name, each in table.columns.items()} for _ in range(BY_CLIENT)]
        table.write_by_client(way, rows)
    plain = [name for name, each in table.columns.items() if not isinstance(each, t.ArrayType | t.MapType | t.RowType)]
    for _ in range(alone):
        name = rng.choice(plain)
        table.write_alone({**rng.choice(rows), name: drawn(rng)}, name)
    table.check()
    return together + alone


@pytest.mark.parametrize("is_keyed", [False, True], ids=["log", "keys"])
def test_equal_or_refused(tables: Tables, is_keyed: bool) -> None:
    rng = random.Random(f"{seed()} {is_keyed}")
    assert one_round(tables, rng, is_keyed, GATE_ROWS, GATE_ALONE) >= 50


@pytest.mark.soak
@pytest.mark.parametrize("is_keyed", [False, True], ids=["log", "keys"])
def test_twenty_thousand_cases(tables: Tables, is_keyed: bool) -> None:
    rng = random.Random(f"{seed()} {is_keyed} soak")
    cases = 0
    while cases < SOAK_CASES // 2:
        cases += one_round(tables, rng, is_keyed, together=rng.choice([20, 200, 500]), alone=10)
    assert cases >= SOAK_CASES // 2
