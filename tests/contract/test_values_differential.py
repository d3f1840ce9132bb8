"""Random schemas and values by every way in and out of both kinds of tables: equal or refused, never changed.

Each round draws a schema and rows for it. All rows go in by every way at once, and rows with one value of any kind
alone; `tests.support.values.oracle` says what must come out of each, or that every way refuses it. A case is a row of a
schema.
"""

from __future__ import annotations

import contextlib
import math
import random
import re
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fluss
from fluss import ChangeType, FlussError
from fluss.model import types as t
from tests.support.runner.lanes import rounds, seed
from tests.support.servers.targets import Target
from tests.support.tables.scan_tables import WAIT_MS
from tests.support.values.oracle import RefusedError, expected, plain_arrow_type, shown
from tests.support.values.random_values import DrawnSchema, drawn, drawn_schema, drawn_value

WAYS = ("rows", "arrow", "pandas", "polars")
GATE_ROUNDS = 13
GATE_CASES = 1_000
ROWS_TOGETHER, ROWS_ALONE = 28, 12
SOAK_CASES = 1_000_000
FRAMES: dict[str, Any] = {"arrow": pa.table, "pandas": pd.DataFrame, "polars": pl.DataFrame}
Row = dict[str, Any]


def column_of(way: str, values: list[Any], data_type: t.DataType) -> Any:
    """The values in the form that a way has for them; by the type of the column where there are several."""
    arrow_type = plain_arrow_type(data_type)
    if way == "pandas":
        return pd.Series(values, dtype=object if any(value is None for value in values) else None)
    # Pairs of maps are lists elsewhere, what polars makes of lists may panic, and both cut nanoseconds by themselves.
    is_typed = "MAP<" in str(data_type) or "(9)" in str(data_type)
    if way == "polars":
        if not is_typed and not pa.types.is_nested(arrow_type):
            with contextlib.suppress(pl.exceptions.PolarsError, pa.ArrowException, TypeError, OverflowError):
                return pl.Series(values, strict=True)
        return pl.Series(pa.array(values, arrow_type))
    try:
        return pa.array(values, arrow_type if is_typed else None)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.array(values, arrow_type)


def alone(way: str, value: Any) -> Any:
    """The column of one value, whatever type the way gives it; None where it has none."""
    nanos = pa.timestamp("ns", None if value.tzinfo is None else "UTC") if isinstance(value, pd.Timestamp) else None
    try:
        if way == "pandas":
            return pd.Series([value])
        return (
            pa.array([value], nanos)
            if way == "arrow"
            else pl.Series([value] if nanos is None else pa.array([value], nanos))
        )
    except (pa.ArrowException, ValueError, TypeError, OverflowError, pl.exceptions.PolarsError):
        return None


class Table:
    """A table of a drawn schema, and what must be in it."""

    def __init__(self, db: fluss.Database, schema: DrawnSchema, is_keyed: bool) -> None:
        self.db, self.is_keyed = db, is_keyed
        self.columns, self.key = schema
        self.name = f"t_{uuid.uuid4().hex[:12]}"
        builder = fluss.Schema.builder()
        for name, data_type in self.columns.items():
            builder = builder.column(name, data_type)
        self.has_prefix = is_keyed and len(self.key) > 1
        db.create_table(
            self.name,
            (builder.primary_key(*self.key) if is_keyed else builder).build(),
            bucket_count=2 if is_keyed else 1,
            bucket_keys=self.key[:1] if self.has_prefix else None,
        )
        self.opened = db._open(self.name)
        self.writer: Any = (self.opened.new_upsert() if is_keyed else self.opened.new_append()).create_writer()
        self.written: list[Row] = []
        self.deleted: list[Row] = []

    def expected(self, row: Row, way: str = "rows") -> Row:
        if way == "pandas":  # its NaN is a missing value, except for floats
            row = {name: None if self.is_missing(name, value) else value for name, value in row.items()}
        return {name: expected(row[name], each, self.is_keyed) for name, each in self.columns.items()}

    def is_missing(self, name: str, value: Any) -> bool:
        is_nan = isinstance(value, float) and math.isnan(value)
        return is_nan and self.columns[name].root not in ("FLOAT", "DOUBLE")

    def write(self, way: str, frame: Any, rows: Iterable[Row]) -> None:
        if way == "pandas":
            self.writer.write_pandas(frame)
        elif way == "polars":
            self.writer.flush().result()  # the facade has a writer of its own
            (self.db.upsert if self.is_keyed else self.db.append)(self.name, frame)
        elif way != "rows":
            self.writer.write_arrow(frame)
        else:
            for row in rows:
                self.writer.upsert(row) if self.is_keyed else self.writer.append(row)

    def frame(self, way: str, rows: list[Row], names: Iterable[str], strange: tuple[str, Any] | None = None) -> Any:
        columns = {name: column_of(way, [row[name] for row in rows], self.columns[name]) for name in names}
        if strange is not None:
            columns[strange[0]] = strange[1]
        return FRAMES[way](columns)

    def write_together(self, way: str, rows: list[Row]) -> None:
        """Many rows in one call; they all come out."""
        self.write(way, None if way == "rows" else self.frame(way, rows, self.columns), rows)
        wanted = [self.expected(row) for row in rows]
        self.written += wanted
        if self.is_keyed:
            self.writer.flush().result()
            self.check_and_delete(way, rows, wanted)

    def check_and_delete(self, way: str, rows: list[Row], wanted: list[Row]) -> None:
        by_key = {shown([row[name] for name in self.key]): row for row in wanted}  # the last one of a key
        self.deleted += by_key.values()
        same_rows(self.db.to_arrow(self.name).to_pylist(), by_key.values(), in_order=False)
        keys = [{name: row[name] for name in self.key} for row in rows]
        frame: Any = None if way == "rows" else self.frame(way, keys, self.key)
        given = frame.to_arrow() if way == "polars" else keys if way == "rows" else frame
        found = self.db.lookup_many(self.name, given)
        in_order = [by_key[shown([row[name] for name in self.key])] for row in wanted]
        if isinstance(found, pa.Table):
            same_rows(found.to_pylist(), in_order)
        else:
            same_rows(found, in_order, digits=6)
        if self.has_prefix:
            first = self.key[0]
            found = self.db.lookup(self.name, {first: rows[0][first]}, by=[first])
            begin_so = [row for row in by_key.values() if shown(row[first]) == shown(wanted[0][first])]
            same_rows(found, begin_so, in_order=False, digits=6)
        if way == "rows":
            for key in keys:
                self.writer.delete(key)
        elif way == "polars":
            self.db.delete(self.name, frame)
        else:
            (self.writer.delete_pandas if way == "pandas" else self.writer.delete_arrow)(frame)
        self.writer.flush().result()
        assert self.db.to_arrow(self.name).num_rows == 0

    def write_alone(self, way: str, row: Row, name: str) -> None:
        """One row with a value of any kind in a column: what the oracle says is what happens."""
        try:
            wanted = self.expected(row, way)
        except RefusedError:
            wanted = None
        column = alone(way, row[name]) if way != "rows" else None
        if way != "rows" and column is None:
            return
        frame = None if way == "rows" else self.frame(way, [row], set(self.columns) - {name}, (name, column))
        try:
            self.write(way, frame, [row])
        except FlussError as error:
            said = "is|must not be null" if way == "pandas" and self.is_missing(name, row[name]) else "expects"
            if wanted is not None or not re.search(f"column {name!r} .*({said})", error.message):
                raise AssertionError(f"{way}: {row[name]!r} into {self.columns[name]}: {error.message}") from error
            if self.is_keyed and name in self.key:
                self.refuses_key(row)
            return
        assert wanted is not None, (way, self.columns[name], row[name])
        self.written.append(wanted)
        if self.is_keyed:
            self.writer.flush().result()
            plain = row if not self.is_missing(name, row[name]) else {**row, name: wanted[name]}
            self.check_and_delete(way if name not in self.key else "rows", [plain], [wanted])

    def refuses_key(self, row: Row) -> None:
        key = {name: row[name] for name in self.key}
        for call in (self.writer.delete, lambda key: self.db.lookup(self.name, key)):
            with pytest.raises(FlussError, match="expects"):
                call(key)

    def check_log(self) -> None:
        """By Arrow and by records, in the order of the writes."""
        self.writer.flush().result()
        same_rows(self.db.to_arrow(self.name).to_pylist(), self.written)
        found: list[Row] = []
        with self.opened.new_scan()._log_scanner(records=True) as scanner:
            scanner.subscribe_all()
            while len(found) < len(self.written):
                found += [record.row for record in scanner.poll(WAIT_MS)]
        same_rows(found, self.written, digits=6)

    def check_changelog(self) -> None:
        """Records of everything that was upserted and deleted. Of rows that are written twice, there may be one."""
        upserts: list[Row] = []
        deletes: list[Row] = []
        with self.opened.new_scan()._log_scanner(records=True) as scanner:
            scanner.subscribe_all()
            while len(deletes) < len(self.deleted):
                for record in scanner.poll(WAIT_MS):
                    if record.change_type in (ChangeType.Insert, ChangeType.UpdateAfter):
                        upserts.append(record.row)
                    elif record.change_type is ChangeType.Delete:
                        deletes.append(record.row)
        same_rows(deletes, self.deleted, in_order=False, digits=6)
        assert {shown(row, digits=6) for row in upserts} == {shown(row, digits=6) for row in self.written}


def same_rows(found: Iterable[Row], wanted: Iterable[Row], *, in_order: bool = True, digits: int = 9) -> None:
    both = [[shown(row, digits=digits) for row in rows] for rows in (found, wanted)]
    if not in_order:
        both = [sorted(rows) for rows in both]
    wrong = next((pair for pair in zip(*both, strict=False) if pair[0] != pair[1]), None)
    assert wrong is None, wrong
    assert len(both[0]) == len(both[1])


def one_round(db: fluss.Database, rng: random.Random, is_keyed: bool, together: int = ROWS_TOGETHER) -> int:
    """The number of cases."""
    table = Table(db, drawn_schema(rng), is_keyed)
    rows = [{name: drawn_value(rng, each, nanos=True) for name, each in table.columns.items()} for _ in range(together)]
    strange = []
    for _ in range(ROWS_ALONE):
        name = rng.choice(list(table.columns))
        value = drawn(rng, nanos=True)
        if isinstance(table.columns[name], t.RowType | t.MapType) and isinstance(value, list | dict):
            value = 5  # what these mean there depends on the way
        strange.append((name, {**rng.choice(rows), name: value}))
    for way in WAYS:
        table.write_together(way, rows)
        for name, row in strange:
            table.write_alone(way, row, name)
    if is_keyed:
        table.check_changelog()
    else:
        table.check_log()
    db.drop_table(table.name)
    return together + ROWS_ALONE


@pytest.fixture
def db(target: Target) -> Iterator[fluss.Database]:
    with fluss.connect(target.bootstrap_servers) as db:
        yield db


@pytest.mark.parametrize("is_keyed", [False, True], ids=["log", "keys"])
def test_equal_or_refused(db: fluss.Database, is_keyed: bool) -> None:
    rng = random.Random(f"{seed()} {is_keyed}")
    cases = sum(one_round(db, rng, is_keyed) for _ in range(rounds(gate=GATE_ROUNDS, all_lanes=4 * GATE_ROUNDS)))
    assert cases >= GATE_CASES // 2


@pytest.mark.soak
@pytest.mark.parametrize("is_keyed", [False, True], ids=["log", "keys"])
def test_a_million_cases(db: fluss.Database, is_keyed: bool) -> None:
    rng = random.Random(f"{seed()} {is_keyed} soak")
    cases = 0
    while cases < SOAK_CASES // 2:
        cases += one_round(db, rng, is_keyed, together=rng.choice([10, 400, 2000]))
    assert cases >= SOAK_CASES // 2
