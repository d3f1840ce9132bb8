"""Every query has its own scan: filters and columns of one query do not affect another."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.datasource import EqualTo, Filter

from fluss.spark.java.java_classes import load_if_possible
from fluss.spark.source import FlussDataSource
from tests.spark.conftest import Tables
from tools.waiting import patience

ROWS = pa.table({"id": list(range(100)), "name": [f"n{number}" for number in range(100)], "even": [True, False] * 50})
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def frame(tables: Tables) -> DataFrame:
    """A table of a hundred rows."""
    tables.create("t", pa.schema([("id", pa.int64()), ("name", pa.string()), ("even", pa.bool_())]))
    tables.db.append(tables.path("t"), ROWS)
    return tables.read("t")


def scanned_columns(frame: DataFrame) -> str:
    """The columns that the plan reads from the source."""
    plan: Any = frame._jdf
    lines = plan.queryExecution().executedPlan().toString().splitlines()
    (line,) = [line for line in lines if "BatchScan" in line]
    return str(line)


def counts(frame: DataFrame) -> list[int]:
    """Count with different filters over one frame, also twice in one query."""
    five = frame.filter("id = 5")
    return [frame.count(), five.count(), frame.count(), frame.filter("id >= 90").count(), five.union(frame).count()]


@pytest.mark.parametrize("push_down", ["true", pytest.param("false", marks=pytest.mark.all)])
def test_filters_of_one_query_are_not_those_of_the_next(tables: Tables, frame: DataFrame, push_down: str) -> None:
    before = tables.spark.conf.get(PUSH_DOWN)
    tables.spark.conf.set(PUSH_DOWN, push_down)
    try:
        assert counts(frame) == [100, 1, 100, 10, 101]
    finally:
        tables.spark.conf.set(PUSH_DOWN, str(before))


def test_a_view_answers_each_query_by_itself(tables: Tables, frame: DataFrame) -> None:
    options = ", ".join(f"`{key}` '{value}'" for key, value in tables.options(table=tables.path("t")).items())
    tables.spark.sql(f"CREATE OR REPLACE TEMP VIEW own_scans USING fluss OPTIONS ({options})")
    view = tables.spark.table("own_scans")
    assert counts(view) == [100, 1, 100, 10, 101]
    assert tables.spark.sql("SELECT count(*) AS n FROM own_scans WHERE id < 3").head()["n"] == 3  # type: ignore[index]


def test_only_needed_columns_are_read(frame: DataFrame) -> None:
    narrow = frame.select("name")
    assert "name#" in scanned_columns(narrow)
    assert "even#" not in scanned_columns(narrow)
    assert narrow.distinct().count() == 100
    assert frame.select("id", "even", "name").filter("even").agg({"id": "sum"}).head()[0] == sum(range(0, 100, 2))  # type: ignore[index]


@pytest.mark.all
def test_another_thread_has_its_own_scans(frame: DataFrame, tables: Tables) -> None:
    found: list[Any] = []

    def work() -> None:
        other = tables.read("t")
        found.append((scanned_columns(other.select("id")), counts(other)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(patience(120))
    ((plan, numbers),) = found
    assert "name#" not in plan
    assert numbers == [100, 1, 100, 10, 101]


@pytest.mark.all
def test_loading_again_changes_nothing(tables: Tables, frame: DataFrame) -> None:
    assert load_if_possible(tables.spark)
    assert counts(frame) == [100, 1, 100, 10, 101]


def test_a_reader_that_may_serve_other_queries_takes_no_filters(tables: Tables, frame: DataFrame) -> None:
    source = FlussDataSource(tables.options(table=tables.path("t")))
    filters: list[Filter] = [EqualTo(("id",), 5)]
    assert list(source.reader(frame.schema).pushFilters(filters)) == filters
