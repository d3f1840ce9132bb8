"""Random values by every way in and out of both kinds of tables: equal or refused, never changed.

A table has a column of every type, and a row for every case: a value, drawn as a Python value, in one of the columns.
For the ways of Arrow, pandas and polars it gets the form that those have for it. What comes out must be equal by
Python's comparison, which is exact between integers, floats and decimals; and whether a value is taken does not depend
on the way.
"""

from __future__ import annotations

import datetime
import decimal
import math
import random
import uuid
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fluss
from fluss import FlussError, TablePath
from tests.support.lanes import rounds, seed
from tests.support.log_reader import read_rows
from tests.support.targets import running_target

D = decimal.Decimal
UTC = datetime.timezone.utc
TYPES = {
    "boolean": fluss.DataTypes.boolean(),
    "tiny": fluss.DataTypes.tinyint(),
    "int": fluss.DataTypes.int(),
    "big": fluss.DataTypes.bigint(),
    "double": fluss.DataTypes.double(),
    "char": fluss.DataTypes.char(3),
    "string": fluss.DataTypes.string(),
    "binary": fluss.DataTypes.binary(2),
    "bytes": fluss.DataTypes.bytes(),
    "money": fluss.DataTypes.decimal(10, 2),
    "wide": fluss.DataTypes.decimal(38, 18),
    "date": fluss.DataTypes.date(),
    "time3": fluss.DataTypes.time(3),
    "time6": fluss.DataTypes.time(6),
    "ts0": fluss.DataTypes.timestamp(0),
    "ts3": fluss.DataTypes.timestamp(3),
    "ts6": fluss.DataTypes.timestamp(6),
    "ts9": fluss.DataTypes.timestamp(9),
    "ltz3": fluss.DataTypes.timestamp_ltz(3),
    "list": fluss.DataTypes.array(fluss.DataTypes.tinyint()),
    "row": fluss.DataTypes.row([fluss.DataTypes.field("x", fluss.DataTypes.decimal(4, 1))]),
}
# Times 21 columns and four ways: about 1,000 cases for each kind of table.
VALUES_OF_A_COLUMN = 12
WAYS = ("rows", "arrow", "pandas", "polars")


def drawn(rng: random.Random) -> Any:
    """A value, with edges more often than not."""
    kind = rng.randrange(11)
    if kind == 0:
        return rng.choice([0, 1, -1, 127, 128, -129, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)])
    if kind == 1:
        return rng.choice([0.0, -0.0, 0.1, 1.5, 1.999, 5.0, 1e16, 1e39, 5e-324, math.inf, -math.inf])
    if kind == 2:
        return D(rng.randrange(-(10**6), 10**6)).scaleb(-rng.randrange(5))
    if kind == 3:
        return rng.choice(["", "a", "abc", "abcd", "äöü", "😀😀😀", "a\0", "5", "x" * 2000])
    if kind == 4:
        return rng.choice([b"", b"a", b"ab", b"\0\0", b"abc", b"\xff\xfe"])
    if kind == 5:
        return rng.random() < 0.5
    if kind == 6:
        return datetime.date(1, 1, 1) + datetime.timedelta(rng.randrange(3_652_059))
    micros = rng.choice([0, 1, 999, 1000, 123_000, 123_456, 999_999])
    if kind == 7:
        return datetime.time(rng.randrange(24), rng.randrange(60), rng.randrange(60), micros)
    moment = datetime.datetime(rng.choice([1, 1677, 1900, 1969, 1970, 2026, 2262, 9998]), 3, 1, rng.choice([0, 23]), 5)
    if kind == 8:
        return rng.choice([moment.replace(microsecond=micros), datetime.datetime(2026, 1, 1)])
    if kind == 9:
        return moment.replace(year=2026, microsecond=micros, tzinfo=UTC)
    return rng.choice([[1, -128, 5], [128], [], {"x": D("1.5")}, {"x": D("1.55")}, {"X": D("1.5")}, {"x": 7}])


def same(given: Any, found: Any) -> bool:
    """Python compares numbers of different types exactly; the rest are forms of one value that it does not know."""
    if isinstance(given, list) and isinstance(found, list):
        return len(given) == len(found) and all(map(same, given, found))
    if isinstance(given, dict) and isinstance(found, dict):
        return given.keys() == found.keys() and all(same(given[name], found[name]) for name in given)
    if isinstance(given, bool) != isinstance(found, bool):
        return False
    if isinstance(given, float) and isinstance(found, D):
        return D(str(given)) == found
    if isinstance(given, datetime.datetime):
        if isinstance(found, datetime.datetime):
            return given.replace(tzinfo=UTC) == found.replace(tzinfo=UTC)
        return given == datetime.datetime.combine(found, datetime.time())
    return bool(given == found)


def frame_of(way: str, name: str, number: int, value: Any) -> Any:
    """The value in the form of a way in; None where that way has none for it."""
    columns = {"id": [number], name: [value]}
    try:
        if way == "arrow":
            return pa.table(columns)
        return pd.DataFrame(columns) if way == "pandas" else pl.DataFrame(columns).to_arrow()
    except (pa.ArrowException, ValueError, TypeError, OverflowError, pl.exceptions.PolarsError):
        return None


def write(writer: Any, row_call: str, way: str, name: str, number: int, value: Any) -> bool | None:
    """Whether the writer took the value; None where the way has no form for it."""
    try:
        if way == "rows":
            getattr(writer, row_call)({"id": number, name: value})
            return True
        frame = frame_of(way, name, number, value)
        if frame is None:
            return None
        (writer.write_pandas if way == "pandas" else writer.write_arrow)(frame)
    except FlussError as error:
        if f"column {name!r} expects" not in error.message:
            raise
        return False
    return True


@pytest.mark.parametrize("is_keyed", [False, True], ids=["log", "keys"])
def test_equal_or_refused(is_keyed: bool) -> None:
    """On our own server; the rule is the client's, so another server sees the same."""
    rng = random.Random(seed())
    with fluss.connect(running_target("embedded").bootstrap_servers) as db:
        for _ in range(rounds(gate=1, all_lanes=4)):
            one_round(db, rng, is_keyed)


def one_round(db: fluss.Database, rng: random.Random, is_keyed: bool) -> None:
    name = f"t_{uuid.uuid4().hex[:12]}"
    builder = fluss.Schema.builder().column("id", fluss.DataTypes.int())
    for column, data_type in TYPES.items():
        builder = builder.column(column, data_type)
    db.create_table(name, (builder.primary_key("id") if is_keyed else builder).build(), bucket_count=1)
    table = db._open(name)
    writer: Any = table.new_upsert().create_writer() if is_keyed else table.new_append().create_writer()
    taken: dict[int, tuple[str, Any]] = {}
    for column in TYPES:
        for _ in range(VALUES_OF_A_COLUMN):
            value = drawn(rng)
            answers = set()
            for way in WAYS:
                number = len(taken)
                took = write(writer, "upsert" if is_keyed else "append", way, column, number, value)
                if took:
                    taken[number] = column, value
                answers.add(took)
            assert len(answers - {None}) == 1, (column, value, answers)
    writer.flush().result()
    outs = [db.to_arrow(name).sort_by("id").to_pylist()]
    if is_keyed:
        outs.append(db.lookup_many(name, list(range(len(taken)))))
    else:
        outs.append(sorted(read_rows(db._connection, TablePath("fluss", name)), key=lambda row: row["id"]))
    for rows in outs:
        assert [row["id"] for row in rows] == list(range(len(taken)))
        for row, (column, value) in zip(rows, taken.values(), strict=True):
            assert same(value, row[column]), (column, value, row[column])
