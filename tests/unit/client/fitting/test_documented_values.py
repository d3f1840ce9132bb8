"""The table of docs/values.md, tried cell by cell: fits, and all ways in but Spark's."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fluss.client.fitting import Fit, FitRules, UnfitTypeError, UnfitValueError, fit_of
from fluss.client.input.arrow_input import ArrowInput
from fluss.client.input.frame_input import table_of_frame
from fluss.client.input.row_columns import ColumnMaker
from fluss.client.write.row_function import RowRules, make_append
from fluss.codec.rows.columns import RowFormat
from fluss.errors import FlussError
from fluss.model import types as t
from fluss.model.schema import Column, Schema
from tests.support.values.documented_values import COLUMNS, SOURCES, WIDEST, cells, differences, tried
from tests.unit.client.write.test_row_function import Sink

PLAIN = FitRules()
KEY = FitRules(row_format=RowFormat.COMPACTED, is_key=True)


def schema_of(data_type: t.DataType) -> Schema:
    return Schema((Column("c", data_type),))


def by_rows(data_type: t.DataType, value: Any, rules: FitRules = PLAIN) -> Any:
    """The function behind `append`, `upsert`, `delete` and lookups, and the batch that is made of its rows."""
    checks, sink = RowRules("db.t", schema_of(data_type), rules=rules), Sink()
    make_append(checks, sink)({"c": value})
    return ColumnMaker(checks.schema).record_batch(sink.flat, checks.saw_null).column(0)[0].as_py()


def by_table(data_type: t.DataType, table: pa.Table, rules: FitRules = PLAIN) -> Any:
    (batch,) = ArrowInput("db.t", schema_of(data_type), rules=rules).batches(table)
    return batch.column(0)[0].as_py()


def by_pandas(data_type: t.DataType, series: pd.Series[Any]) -> Any:
    rules = ArrowInput("db.t", schema_of(data_type))
    return by_table(data_type, table_of_frame(rules, pd.DataFrame({"c": series}), "write_pandas"))


WAYS: dict[str, Callable[[t.DataType, Any], Any]] = {
    "rows": by_rows,
    "rows of keys": lambda data_type, value: by_rows(data_type, value, KEY),
    "Arrow": lambda data_type, value: by_table(data_type, pa.table({"c": [value]})),
    "Arrow keys": lambda data_type, value: by_table(data_type, pa.table({"c": [value]}), KEY),
    "pandas": lambda data_type, value: by_pandas(data_type, pd.Series([value])),
    "pandas objects": lambda data_type, value: by_pandas(data_type, pd.Series([value], dtype=object)),
    "polars": lambda data_type, value: by_table(data_type, pl.DataFrame({"c": [value]}).to_arrow()),
}


def test_the_document_has_every_source_and_column() -> None:
    found = cells()
    assert {source for source, _, _ in found} == set(SOURCES)
    assert {column for _, column, _ in found} == set(COLUMNS)
    assert {word for _, _, word in found} == {"taken", "exact", "rounded", "refused"}


@pytest.mark.parametrize(("source", "column", "word"), cells())
def test_the_document_is_right(source: str, column: str, word: str) -> None:
    fits, finer = SOURCES[source]
    for data_type in COLUMNS[column]:
        fit = fit_of(data_type)
        if word == "refused":
            with pytest.raises(UnfitValueError):
                fit.value(fits)
            with pytest.raises(UnfitTypeError):
                fit.array(pa.array([], pa.array([fits]).type))
            continue
        fit.value(fits)
        assert fit.array(pa.array([fits])).to_pylist() != [None]
        if word != "exact":
            if finer is not None:
                fit.value(finer)
        elif (source, data_type) not in WIDEST:
            with pytest.raises(UnfitValueError):
                fit.value(finer)
            with pytest.raises(UnfitValueError):
                fit.array(pa.array([finer]))


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_does_what_the_table_says(way: str) -> None:
    assert not differences(way)
    for source, column, word in cells():
        tried(WAYS[way], source, column, word)


def test_nan_is_null_for_pandas_alone() -> None:
    for data_type in (t.IntType(), t.StringType(), t.DecimalType(6, 2)):
        assert by_pandas(data_type, pd.Series([float("nan")])) is None
        assert by_pandas(data_type, pd.Series([float("nan")], dtype=object)) is None
        for way in ("rows", "Arrow", "polars"):
            with pytest.raises(FlussError):
                WAYS[way](data_type, float("nan"))
    for way in ("rows", "Arrow", "pandas", "polars"):
        assert math.isnan(WAYS[way](t.DoubleType(), float("nan")))


ADVICE = re.compile(
    r"[:;] (write|convert|round|give|make|cast|shorten|correct|change|remove|pass|take|use|it needs|"
    r"the (last )?fields are) [^:]*$"
)


def refusals(fit: Fit, value: Any) -> list[str]:
    """Why a column does not take a value, and an array of it if there is such a one."""
    tries: list[tuple[Callable[[Any], Any], Any]] = [(fit.value, value)]
    with contextlib.suppress(pa.ArrowException, ValueError, OverflowError):
        tries.append((fit.array, pa.array([value])))
    found = []
    for call, given in tries:
        try:
            call(given)
        except UnfitValueError as error:
            found.append(str(error))
    return found


def test_errors_say_what_to_do() -> None:
    """Of every value that a column refuses: something of another kind, or too much of its own."""
    values = [value for pair in SOURCES.values() for value in pair if value is not None]
    values += [10**400, 2**40, 1e39, decimal.Decimal("1e30"), math.inf, "\ud800", "ä" * 5, b"abc", [None], {"X": 1}]
    values += [datetime.datetime(3000, 1, 1), datetime.time(1, 2, 3, 4, datetime.UTC)]
    values += [pd.NaT, np.datetime64(10**15, "s")]
    types = [data_type for column in COLUMNS.values() for data_type in column]
    types += [t.TimestampType(9), t.ArrayType(t.IntType()), t.MapType(t.StringType(), t.IntType())]
    types += [t.RowType((t.RowField("x", t.IntType()),))]
    said = [(kind, text) for kind in types for value in values for text in refusals(fit_of(kind), value)]
    assert len(said) > 500
    assert not [each for each in said if not ADVICE.search(each[1])]
