"""Dates and times in the lake outside of the years 1 to 9999, which Python's own types cannot hold."""

from __future__ import annotations

from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest

import fluss
from fluss.errors import FlussError
from tests.support.lake.tiered_tables import LakeTable

MOMENTS = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("zoned", pa.timestamp("us", "UTC")),
        ("coarse", pa.timestamp("ms")),
        ("days", pa.list_(pa.date32())),
    ]
)
FAR_MICROS = 3 * 10**17
DAYS = [5_000_000, -1_000_000, 0, None]
MICROS = [FAR_MICROS, -FAR_MICROS, 0, None]


def moments() -> pa.Table:
    micros = pa.array(MICROS, pa.int64())
    columns: list[Any] = [
        pa.array(range(4), pa.int64()),
        pa.array(DAYS, pa.date32()),
        micros.cast(pa.timestamp("us")),
        micros.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
        pa.array([None if each is None else each // 1000 for each in MICROS], pa.timestamp("ms")),
        pa.array([[day] for day in DAYS], pa.list_(pa.date32())),
    ]
    return pa.table(columns, schema=MOMENTS)


@pytest.mark.parametrize("keys", [{}, {"primary_keys": ["id"]}], ids=["log", "key"])
def test_all_engines_read_them(db: fluss.Database, keys: dict[str, Any]) -> None:
    table = LakeTable(db, MOMENTS, bucket_count=1, **keys)
    rows = moments()
    (db.upsert if keys else db.append)(table.name, rows)
    assert table.tier().rows == 4
    for from_lake in (False, True):
        assert db.to_arrow(table.name, read_optimized=from_lake).sort_by("id").cast(MOMENTS).equals(rows)
    outside = table.outside()
    arrow = outside.scan().to_arrow()
    assert arrow.select(MOMENTS.names).sort_by("id").cast(MOMENTS).equals(rows)
    assert outside.scan(row_filter="day > '2020-01-01'").to_arrow()["id"].to_pylist() == [0]
    seen = polars.scan_iceberg(outside, reader_override="pyiceberg").collect().sort("id")
    assert seen["day"].cast(polars.Int32).to_list() == DAYS
    assert seen["at"].cast(polars.Int64).to_list() == MICROS
    connection = duckdb.connect()
    connection.register("t", arrow)
    (day,) = connection.sql("SELECT CAST(day AS VARCHAR) FROM t WHERE id = 0").fetchall()
    assert day == ("15659-07-15",)


def test_a_time_that_the_lake_cannot_hold_is_named(db: fluss.Database) -> None:
    """Microseconds end some 292,000 years from 1970; milliseconds do not."""
    table = LakeTable(db, pa.schema([("id", pa.int64()), ("at", pa.timestamp("ms"))]), bucket_count=1)
    db.append(table.name, pa.table({"id": [1], "at": pa.array([2**62], pa.timestamp("ms"))}))
    with pytest.raises(FlussError, match=f"{table.name}: column 'at' .* out of bounds"):
        table.tier()
    assert table.lost_files() == []
