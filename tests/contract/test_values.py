"""What goes in comes out: values that a column cannot hold are refused by every way in, before any row leaves."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fluss
from fluss import FlussError
from tests.support.servers.targets import Target

D, UTC = decimal.Decimal, datetime.UTC
TIME = datetime.time(1, 2, 3, 456_789)
CUT_TIME = TIME.replace(microsecond=456_000)


@pytest.fixture
def db(target: Target) -> Iterator[fluss.Database]:
    with fluss.connect(target.bootstrap_servers) as db:
        yield db


def new_table(db: fluss.Database, name: str, columns: dict[str, Any], key: list[str] | None = None) -> Any:
    builder = fluss.Schema.builder()
    for column, data_type in columns.items():
        builder = builder.column(column, data_type)
    if key:
        builder = builder.primary_key(*key)
    db.create_table(name, builder.build(), bucket_count=1)
    return name


def rows_of(db: fluss.Database, name: str) -> Any:
    return sorted(db.to_arrow(name).to_pylist(), key=repr)


def not_utf8() -> Any:
    return pa.array([b"caf\xe9"]).view(pa.string())


def too_many_digits() -> Any:
    return pa.array([D("123.45")], pa.decimal128(5, 2)).view(pa.decimal128(4, 2))


@pytest.mark.parametrize("key", [None, ["id"]], ids=["log", "keys"])
@pytest.mark.parametrize(
    ("data_type", "array", "words"),
    [
        (fluss.DataTypes.time(3), pa.array([90_000_000], pa.time32("ms")), "got 90000000 .* not a time of day"),
        (fluss.DataTypes.string(), not_utf8(), r"got b'caf\\xe9' .* not UTF-8"),
        (fluss.DataTypes.decimal(4, 2), too_many_digits(), "more digits than"),
        (fluss.DataTypes.array(fluss.DataTypes.string()), pa.ListArray.from_arrays([0, 1], not_utf8()), "not UTF-8"),
    ],
    ids=["time", "text", "decimal", "nested"],
)
def test_arrow_data_that_nobody_could_read_is_refused(
    db: fluss.Database, table_name: str, key: Any, data_type: Any, array: Any, words: str
) -> None:
    new_table(db, table_name, {"id": fluss.DataTypes.int(), "v": data_type}, key)
    bad = pa.table({"id": [2], "v": array})
    write = db.upsert if key else db.append
    write(table_name, {"id": 1})
    with pytest.raises(FlussError, match=rf"column 'v' expects .*{words}") as caught:
        write(table_name, bad)
    assert "in row 0" in caught.value.message
    write(table_name, {"id": 3})
    assert [row["id"] for row in rows_of(db, table_name)] == [1, 3]


def test_times_of_key_tables_are_not_cut(db: fluss.Database, table_name: str) -> None:
    """Their rows hold milliseconds, whatever the type says."""
    new_table(db, table_name, {"k": fluss.DataTypes.time(6), "v": fluss.DataTypes.time(6)}, ["k"])
    for key, value in ((TIME, None), (CUT_TIME, TIME)):
        for rows in ([(key, value)], pa.table({"k": [key], "v": pa.array([value], pa.time64("us"))})):
            with pytest.raises(FlussError, match="digits finer than the milliseconds"):
                db.upsert(table_name, rows)
    for call in (lambda: db.lookup(table_name, TIME), lambda: db.delete(table_name, [(TIME,)])):
        with pytest.raises(FlussError, match="keys are never cut off"):
            call()
    db.upsert(table_name, [(CUT_TIME, CUT_TIME)])
    assert db.lookup(table_name, CUT_TIME) == {"k": CUT_TIME, "v": CUT_TIME}


def test_decimal_keys_are_not_rounded(db: fluss.Database, table_name: str) -> None:
    new_table(db, table_name, {"k": fluss.DataTypes.decimal(10, 2), "v": fluss.DataTypes.int()}, ["k"])
    db.upsert(table_name, [(D("1.01"), 1), (5, 2), (0.1, 3)])
    finer = D("1.0149")
    calls: list[Callable[[], Any]] = [
        lambda: db.upsert(table_name, [(D("1.005"), 9)]),
        lambda: db.upsert(table_name, pa.table({"k": [D("1.005")], "v": [9]})),
        lambda: db.lookup(table_name, finer),
        lambda: db.lookup_many(table_name, [finer]),
        lambda: db.lookup_many(table_name, pa.table({"k": [finer]})),
        lambda: db.delete(table_name, [(finer,)]),
        lambda: db.delete(table_name, pa.table({"k": [finer]})),
        lambda: db.delete(table_name, pd.DataFrame({"k": [finer]})),
    ]
    for call in calls:
        with pytest.raises(FlussError, match="more than 2 digits after the point"):
            call()
    found = db.lookup_many(table_name, pd.DataFrame({"k": [D("1.01"), 5, 0.1]}))
    assert found.column("v").to_pylist() == [1, 2, 3]
    assert db.lookup_many(table_name, pl.DataFrame({"k": [5]})).column("v").to_pylist() == [2]


def test_structs_do_not_lose_fields(db: fluss.Database, table_name: str) -> None:
    point = fluss.DataTypes.row([fluss.DataTypes.field("x", fluss.DataTypes.int())])
    new_table(db, table_name, {"p": point, "l": fluss.DataTypes.array(point)})
    for rows in (
        pa.table({"p": [{"X": 1}]}),
        pa.table({"p": [{"x": 1, "y": 2}]}),
        pa.table({"l": [[{"X": 1}]]}),
        pd.DataFrame({"p": [{"X": 1}]}),
        pl.DataFrame({"p": [{"X": 1}]}),
        [{"p": {"X": 1}}],
    ):
        with pytest.raises(FlussError, match=r"no field '(X|y)'; the fields are x"):
            db.append(table_name, rows)
    db.append(table_name, pl.DataFrame({"p": [{"x": 1}], "l": [[{"x": 2}]]}))
    assert rows_of(db, table_name) == [{"p": {"x": 1}, "l": [{"x": 2}]}]


def test_an_index_of_pandas_that_is_a_column(db: fluss.Database, table_name: str) -> None:
    columns = {"customer": fluss.DataTypes.string(), "total": fluss.DataTypes.bigint()}
    new_table(db, table_name, columns, ["customer"])
    orders = pd.DataFrame({"customer": ["a", "b", "a"], "total": [1, 2, 3]})
    db.upsert(table_name, orders.groupby("customer").sum())
    assert rows_of(db, table_name) == [{"customer": "a", "total": 4}, {"customer": "b", "total": 2}]
    db.delete(table_name, orders.iloc[:1].set_index("customer")[[]])
    assert rows_of(db, table_name) == [{"customer": "b", "total": 2}]


def test_zoned_times_and_missing_values_of_pandas(db: fluss.Database, table_name: str) -> None:
    types = fluss.DataTypes
    new_table(
        db, table_name, {"t": types.timestamp(6), "z": types.timestamp_ltz(6), "n": types.bigint(), "f": types.double()}
    )
    zoned = pd.Series(pd.to_datetime(["2026-01-01 12:00"])).dt.tz_localize("Asia/Tokyo")
    with pytest.raises(FlussError, match=r"column 't' .* no time zone"):
        db.append(table_name, pd.DataFrame({"t": zoned}))
    db.append(table_name, pd.DataFrame({"z": zoned}))
    db.append(table_name, pd.DataFrame({"n": [7.0, float("nan")], "f": [1.5, float("nan")]}))
    rows = db.to_arrow(table_name).sort_by("n").to_pylist()
    assert rows[0]["n"] == 7
    assert [row["z"] for row in rows if row["z"]] == [datetime.datetime(2026, 1, 1, 3, tzinfo=UTC)]
    assert sum(row["f"] != row["f"] for row in rows) == 1


@pytest.mark.parametrize(
    ("data_type", "values"),
    [
        (fluss.DataTypes.timestamp(6), [5]),
        (fluss.DataTypes.float(), [1e39]),
        (fluss.DataTypes.decimal(10, 2), [1.999]),
        (fluss.DataTypes.boolean(), [2]),
        (fluss.DataTypes.date(), [datetime.datetime(2026, 1, 1, 1)]),
        (fluss.DataTypes.bigint(), [datetime.timedelta(seconds=1)]),
        (fluss.DataTypes.double(), [2**53 + 1]),
        (fluss.DataTypes.char(3), ["abcd"]),
    ],
    ids=str,
)
def test_casts_that_would_change_a_value(
    db: fluss.Database, table_name: str, data_type: Any, values: list[Any]
) -> None:
    new_table(db, table_name, {"v": data_type})
    for rows in (
        [(value,) for value in values],
        pa.table({"v": values}),
        pa.record_batch({"v": values}),
        pd.DataFrame({"v": values}),
        pd.DataFrame({"v": pd.Series(values, dtype=object)}),
        pl.DataFrame({"v": values}),
    ):
        with pytest.raises(FlussError, match=r"column 'v' expects"):
            db.append(table_name, rows)
    assert db.to_arrow(table_name).num_rows == 0


def test_a_refused_bulk_write_has_written_nothing(db: fluss.Database, table_name: str) -> None:
    new_table(db, table_name, {"id": fluss.DataTypes.int(), "name": fluss.DataTypes.char(3)})
    good, bad = pa.table({"id": range(1000), "name": ["ok"] * 1000}), pa.table({"id": [7, 8], "name": ["ok", "longer"]})
    with pytest.raises(FlussError, match=r"got 'longer' \(string\) in row 1001 \(row 1 of chunk 1\): .* shorten it"):
        db.append(table_name, pa.concat_tables([good, bad]))
    with pytest.raises(FlussError, match=r"'longer' .* in row 1001"):
        db.append(table_name, pa.concat_tables([good, bad]).to_pandas())
    db.append(table_name, {"id": 1})
    assert db.to_arrow(table_name).num_rows == 1


@pytest.mark.parametrize("key", [None, ["id"]], ids=["log", "keys"])
def test_a_refused_stream_says_which_rows_are_written(db: fluss.Database, table_name: str, key: Any) -> None:
    new_table(db, table_name, {"id": fluss.DataTypes.int(), "name": fluss.DataTypes.char(3)}, key)
    good, bad = pa.table({"id": range(1000), "name": ["ok"] * 1000}), pa.table({"id": [7, 8], "name": ["ok", "longer"]})
    write = db.upsert if key else db.append
    with pytest.raises(FlussError, match=r"in row 1001: .* Of the stream the rows 0 to 999 were written"):
        write(table_name, pa.concat_tables([good, bad]).to_reader())
    assert db.to_arrow(table_name).num_rows == 1000
    with pytest.raises(FlussError, match="Nothing of it was written"):
        write(table_name, bad.to_reader())
    write(table_name, pa.table({"id": [2000], "name": ["ok"]}).to_reader())
    assert db.to_arrow(table_name).num_rows == 1001


def test_digits_are_cut_for_those_who_say_so(db: fluss.Database, table_name: str) -> None:
    types = fluss.DataTypes
    new_table(db, table_name, {"k": types.int(), "t": types.timestamp(0), "d": types.decimal(4, 1)}, ["k"])
    moment, cut = datetime.datetime(1969, 12, 31, 23, 59, 58, 500_000), datetime.datetime(1969, 12, 31, 23, 59, 58)
    table = db._open(table_name)
    with table.new_upsert().create_writer(on_extra_digits="truncate") as writer:
        writer.upsert((1, moment, D("-1.99")))
        writer.upsert_arrow(pa.table({"k": [2], "t": [moment], "d": [D("-1.99")]}))
    assert [row | {"k": 0} for row in rows_of(db, table_name)] == [{"k": 0, "t": cut, "d": D("-2.0")}] * 2
    with pytest.raises(FlussError, match="'error' or 'truncate'"):
        table.new_upsert().create_writer(on_extra_digits="round")  # type: ignore[arg-type]


def test_rows_and_arrow_leave_together_where_null_is_not_allowed(db: fluss.Database, table_name: str) -> None:
    """Arrow says of most columns that they may be null. Joined with rows such a batch stopped the writer for good."""
    new_table(db, table_name, {"id": fluss.DataTypes.int().not_null()})
    with db._open(table_name).new_append().create_writer() as writer:
        for number in range(0, 200, 2):
            writer.append((number,))
            writer.write_arrow(pa.table({"id": pa.array([number + 1], pa.int32())}))
    assert db.to_arrow(table_name)["id"].to_pylist() == list(range(200))


@pytest.mark.parametrize("key", [None, ["k"]], ids=["log", "keys"])
def test_calls_of_a_database_cut_digits_too(db: fluss.Database, table_name: str, key: Any) -> None:
    new_table(db, table_name, {"k": fluss.DataTypes.int(), "d": fluss.DataTypes.decimal(4, 1)}, key)
    write: Any = db.upsert if key else db.append
    rows = pa.table({"k": [1], "d": [D("1.99")]})
    for given in (rows, rows.to_pandas(), pl.from_arrow(rows), {"k": 1, "d": D("1.99")}):
        with pytest.raises(FlussError, match="on_extra_digits='truncate'"):
            write(table_name, given)
        write(table_name, given, on_extra_digits="truncate")
    assert {row["d"] for row in rows_of(db, table_name)} == {D("1.9")}
    assert db.to_arrow(table_name).num_rows == (1 if key else 4)
    with pytest.raises(FlussError, match="'error' or 'truncate'"):
        write(table_name, rows, on_extra_digits="round")


def test_calls_of_a_database_leave_an_auto_increment_column_out(db: fluss.Database, table_name: str) -> None:
    builder = fluss.Schema.builder().column("k", fluss.DataTypes.string()).column("n", fluss.DataTypes.bigint())
    schema = builder.primary_key("k").enable_auto_increment("n").build()
    db.create_table(table_name, schema, bucket_count=1)
    db.upsert(table_name, [("a",)])
    db.upsert(table_name, [("b",)], on_extra_digits="truncate")
    assert [row["k"] for row in rows_of(db, table_name)] == ["a", "b"]


def test_errors_name_a_chunk_where_there_are_several(db: fluss.Database, table_name: str) -> None:
    new_table(db, table_name, {"k": fluss.DataTypes.char(2), "v": fluss.DataTypes.int()}, ["k"])
    good, bad = pa.table({"k": ["a", "b"]}), pa.table({"k": ["c", "longer"]})
    keys = pa.concat_tables([good, bad])
    for call in (db.lookup_many, db.delete, db.upsert):
        with pytest.raises(FlussError, match=r"'longer' \(string\) in row 3 \(row 1 of chunk 1\)"):
            call(table_name, keys)
        with pytest.raises(FlussError, match=r"'longer' .*in row 3: "):
            call(table_name, keys.to_pandas())


def test_partial_updates_and_prefix_lookups_refuse_what_does_not_fit(db: fluss.Database, table_name: str) -> None:
    types = fluss.DataTypes
    builder = fluss.Schema.builder().column("a", types.char(2)).column("b", types.int()).column("v", types.tinyint())
    schema = builder.column("w", types.int()).primary_key("a", "b").build()
    db.create_table(table_name, schema, bucket_count=2, bucket_keys=["a"])
    rows = pa.table({"a": ["x"], "b": [1], "v": [1000]})
    for given in (rows, rows.to_pandas(), pl.from_arrow(rows), [("x", 1, 1000)]):
        with pytest.raises(FlussError, match="column 'v' expects TINYINT"):
            db.upsert(table_name, given, columns=["a", "b", "v"])
    db.upsert(table_name, [("x", 1, 100)], columns=["a", "b", "v"])
    with pytest.raises(FlussError, match="column 'a' expects CHAR"):
        db.lookup(table_name, {"a": "long"}, by=["a"])
    assert db.lookup(table_name, {"a": "x"}, by=["a"]) == [{"a": "x", "b": 1, "v": 100, "w": None}]


def test_a_named_multi_index_and_a_frame_whose_digits_are_cut(db: fluss.Database, table_name: str) -> None:
    types = fluss.DataTypes
    new_table(db, table_name, {"a": types.string(), "b": types.int(), "d": types.decimal(4, 1)})
    index = pd.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["a", "b"])
    frame = pd.DataFrame({"d": [D("1.99"), D("-1.99")]}, index=index)
    with db._open(table_name).new_append().create_writer(on_extra_digits="truncate") as writer:
        writer.write_pandas(frame)
    assert rows_of(db, table_name) == [{"a": "x", "b": 1, "d": D("1.9")}, {"a": "y", "b": 2, "d": D("-2.0")}]


def test_errors_of_rows_name_the_row(db: fluss.Database, table_name: str) -> None:
    new_table(db, table_name, {"id": fluss.DataTypes.int()})
    with pytest.raises(FlussError, match=r"^row 2: .*column 'id' expects INT, got 'x' \(str\)"):
        db.append(table_name, [(1,), (2,), ("x",)])
