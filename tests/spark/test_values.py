"""Values of Spark go in and come out: equal or refused, never changed. One DataFrame has many cases."""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

import fluss
from tests.spark.conftest import Tables, new_tables
from tests.support.lanes import seed
from tests.support.targets import running_target

CASES_OF_A_COLUMN = 20


def moment(rng: random.Random) -> datetime.datetime:
    """Whole milliseconds on both sides of 1970."""
    return datetime.datetime(1969, 12, 31) + datetime.timedelta(milliseconds=rng.randrange(10**8))


class Case(NamedTuple):
    """What Spark has, what the table has, and values that fit."""

    spark_type: str
    data_type: Any
    fits: Callable[[random.Random], Any]


COLUMNS = {
    "money": Case("double", fluss.DataTypes.decimal(10, 2), lambda rng: rng.randrange(10**9) / 100),
    "count": Case("bigint", fluss.DataTypes.decimal(10, 2), lambda rng: rng.randrange(10**8)),
    "tiny": Case("bigint", fluss.DataTypes.tinyint(), lambda rng: rng.randrange(-128, 128)),
    "wide": Case("bigint", fluss.DataTypes.double(), lambda rng: rng.randrange(2**53)),
    "name": Case("string", fluss.DataTypes.char(3), lambda rng: rng.choice(["", "a", "äöü", "abc", "a "])),
    "at": Case("timestamp_ntz", fluss.DataTypes.timestamp(3), moment),
}
SPARK_SCHEMA = "id int, " + ", ".join(f"{name} {case.spark_type}" for name, case in COLUMNS.items())


@pytest.fixture(params=["log", "primary key"])
def tables(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[Tables]:
    for tables in new_tables(running_target("embedded"), spark):
        builder = fluss.Schema.builder().column("id", fluss.DataTypes.int())
        for name, case in COLUMNS.items():
            builder = builder.column(name, case.data_type)
        keyed = builder.primary_key("id") if request.param == "primary key" else builder
        tables.create("t", keyed.build(), bucket_count=1)
        yield tables


def same(given: Any, found: Any) -> bool:
    return bool(decimal.Decimal(str(given)) == found if isinstance(found, decimal.Decimal) else given == found)


def test_equal_or_refused(tables: Tables, spark: SparkSession) -> None:
    rng = random.Random(seed())
    rows = [(number, *(case.fits(rng) for case in COLUMNS.values())) for number in range(CASES_OF_A_COLUMN)]
    tables.write(spark.createDataFrame(rows, SPARK_SCHEMA), "t")
    bad = spark.createDataFrame([(99, None, None, None, None, "abcd", None)], SPARK_SCHEMA)
    with pytest.raises(Exception, match="column 'name' expects CHAR"):
        tables.write(bad, "t")
    by_client = tables.contents("t").sort_by("id").to_pylist()
    by_spark = [row.asDict() for row in tables.read("t").orderBy("id").collect()]
    for outs in (by_client, by_spark):
        assert [out["id"] for out in outs] == list(range(CASES_OF_A_COLUMN))
        for row, out in zip(rows, outs, strict=True):
            assert all(map(same, row, out.values())), (row, out)
