"""The table of docs/values.md, tried cell by cell with values from Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from fluss.client.fitting import FitRules
from fluss.model import types as t
from fluss.model.schema import Column, Schema
from fluss.spark.convert.arrow import SparkInput
from tests.support.values.documented_values import cells, differences, tried


def by_spark(data_type: t.DataType, value: Any) -> Any:
    """Convert Spark's Arrow data as a task does."""
    way = SparkInput("db.t", Schema((Column("c", data_type),)), "microseconds", FitRules())
    return way.rows([pa.array([value])]).column(0)[0].as_py()


def test_spark_behaves_as_in_the_table() -> None:
    other = differences("Spark")
    found = {(source, column): word for source, column, word in cells()}
    assert other.keys() <= found.keys()
    for cell, word in found.items():
        tried(by_spark, *cell, other.get(cell, word))
