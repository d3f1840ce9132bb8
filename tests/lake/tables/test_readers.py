"""Rows come out of the lake unchanged: through us, pyiceberg, duckdb and polars."""

from __future__ import annotations

import datetime as dt
import pickle
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from fluss.lake.tables.iceberg.tables import IcebergFormat, identifier
from fluss.lake.tables.interface.format import LakeSplit
from fluss.model.paths import TableBucket
from fluss.model.types import BooleanType, DateType, IntType, StringType
from tests.support.lake.tables import COMMITTED, PEOPLE, TABLE_ID, LakeTableWriter, made, people, spec_of
from tests.support.spark.all_types import CASES, arrow_rows, nanos

USER_COLUMNS = ["id", "name", "age"]
ALL_TYPES = {"id": IntType(), **{case.name: case.data_type for case in CASES}}


def outside(lake: IcebergFormat, table_writer: LakeTableWriter) -> Table:
    """Load the table as another program does, which knows only the catalog."""
    catalog = load_catalog(lake.catalog.name, type="sql", uri=lake.catalog.properties["uri"])
    return catalog.load_table(identifier(table_writer.spec.path))


def by_key(rows: list[dict[str, Any]], key: str = "id") -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row[key])


def seen_by_all(lake: IcebergFormat, table_writer: LakeTableWriter) -> dict[str, list[dict[str, Any]]]:
    """The user's columns as each reader returns them."""
    table = outside(lake, table_writer)
    arrow = table.scan().to_arrow()
    names = table_writer.schema.column_names
    assert arrow.column_names == [*names, "__bucket", "__offset", "__timestamp"]
    polars_rows = polars.scan_iceberg(table, reader_override="pyiceberg").select(names).collect().to_dicts()
    columns = ", ".join(names)
    connection = duckdb.connect()
    connection.register("t", arrow)
    seen = {
        "ours": table_writer.rows(),
        "pyiceberg": arrow.select(names).to_pylist(),
        "polars": polars_rows,
        "duckdb": connection.sql(f"SELECT {columns} FROM t").to_arrow_table().to_pylist(),
    }
    tasks = list(table.scan().plan_files())
    if not any(task.delete_files for task in tasks):
        files = [task.file.file_path.removeprefix("file://") for task in tasks]
        read = connection.sql(
            f"SELECT {columns} FROM read_parquet({files!r}, hive_partitioning = false, union_by_name = true)"
        )
        seen["duckdb on files"] = read.to_arrow_table().to_pylist()
    return {reader: by_key(rows) for reader, rows in seen.items()}


def check_all_see(lake: IcebergFormat, table_writer: LakeTableWriter, rows: list[dict[str, Any]]) -> None:
    wanted = by_key(rows)
    for reader, seen in seen_by_all(lake, table_writer).items():
        assert seen == wanted, reader


def test_a_log_table_with_two_buckets(lake: IcebergFormat) -> None:
    table_writer = made(lake, spec_of(PEOPLE))
    table_writer.commit(table_writer.write(people(0, 5), bucket=0), table_writer.write(people(5, 3), bucket=3))
    table_writer.commit(table_writer.write(people(8, 4), start=5, bucket=0))
    check_all_see(lake, table_writer, people(0, 12))
    system = outside(lake, table_writer).scan(selected_fields=("id", "__bucket", "__offset", "__timestamp")).to_arrow()
    assert by_key(system.to_pylist())[5] == {"id": 5, "__bucket": 3, "__offset": 0, "__timestamp": COMMITTED}
    assert {each["__bucket"] for each in system.to_pylist()} == {0, 3}


def test_a_partitioned_primary_key_table(lake: IcebergFormat) -> None:
    columns = {"region": StringType(), **PEOPLE}
    table_writer = made(lake, spec_of(columns, primary_key=["region", "id"], partition_keys=["region"]))
    north, south = people(0, 3, region="no/rth"), people(3, 2, region="south")
    table_writer.commit(
        table_writer.write(north, bucket=1, partition=(11, "no/rth")),
        table_writer.write(south, bucket=2, partition=(12, "south")),
    )
    check_all_see(lake, table_writer, [*north, *south])
    planned = [(file.partition_name, file.bucket_id, file.row_count) for file in table_writer.table.plan_files()]
    assert planned == [("no/rth", 1, 3), ("south", 2, 2)]
    chosen = table_writer.table.plan_files(buckets=[("south", 2), ("south", 1)])
    assert by_key(table_writer.rows(chosen)) == south
    pruned = outside(lake, table_writer).scan(row_filter="region == 'south'")
    assert len(list(pruned.plan_files())) == 1
    assert table_writer.table.committed_offsets(TABLE_ID) == {
        TableBucket(TABLE_ID, 11, 1): 3,
        TableBucket(TABLE_ID, 12, 2): 2,
    }


def test_partitions_by_date_number_and_boolean(lake: IcebergFormat) -> None:
    columns = {"day": DateType(), "hour": IntType(), "late": BooleanType(), **PEOPLE}
    table_writer = made(lake, spec_of(columns, partition_keys=["day", "hour", "late"]))
    rows = people(0, 2, day=dt.date(2026, 8, 1), hour=7, late=True)
    table_writer.commit(table_writer.write(rows, partition=(1, "2026-08-01$7$true")))
    check_all_see(lake, table_writer, rows)
    assert [file.partition_name for file in table_writer.table.plan_files()] == ["2026-08-01$7$true"]


def all_types(lake: IcebergFormat) -> tuple[LakeTableWriter, pa.RecordBatch]:
    table_writer = made(lake, spec_of(ALL_TYPES))
    rows = arrow_rows()
    batch = rows.append_column("__offset", pa.array([0, 1, 2]))
    batch = batch.append_column("__timestamp", pa.array([COMMITTED] * 3))
    split = LakeSplit(TableBucket(TABLE_ID, None, 0), None, 0, 3)
    target = pickle.loads(pickle.dumps(table_writer.table.target()))  # as a task in another process has it
    table_writer.commit(pickle.loads(pickle.dumps(target.write_split(split, [batch]))))
    return table_writer, rows


def test_every_type_comes_back_in_the_types_of_the_table(lake: IcebergFormat) -> None:
    table_writer, rows = all_types(lake)
    (back,) = table_writer.table.target().read_files(table_writer.table.plan_files(), table_writer.schema)
    cut = {"c_ts9": ["2026-08-01T12:30:15.123456000", "1969-12-31T23:59:59.999999000"]}
    cut["c_ltz9"] = ["2026-08-01T12:30:15.123456000"]
    for name in rows.schema.names:
        column = back.column(back.schema.get_field_index(name))
        assert column.type == rows.column(name).type, name
        if name in cut:  # the lake has microseconds
            assert column.cast(pa.int64()).drop_null().to_pylist() == [nanos(text) for text in cut[name]]
        else:
            assert column.equals(rows.column(name)) or column.to_pylist() == rows.column(name).to_pylist(), name


def test_every_type_is_read_by_pyiceberg_and_duckdb(lake: IcebergFormat) -> None:
    table_writer, rows = all_types(lake)
    table = outside(lake, table_writer)
    arrow = table.scan().to_arrow()
    connection = duckdb.connect()
    connection.register("t", arrow)
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    on_files = connection.sql(f"SELECT * FROM read_parquet({files!r}, hive_partitioning = false)").to_arrow_table()
    plain = [case.name for case in CASES if case.name not in ("c_ts9", "c_ltz9", "c_map", "c_nested")]
    for name in plain:
        wanted = rows.column(name).to_pylist()
        assert arrow.column(name).to_pylist() == wanted, name
        assert on_files.column(name).to_pylist() == wanted, name
    assert polars.scan_iceberg(table, reader_override="pyiceberg").select("c_int").collect().to_series().to_list() == (
        rows.column("c_int").to_pylist()
    )


def test_statistics_let_engines_skip_files(lake: IcebergFormat) -> None:
    table_writer = made(lake, spec_of(PEOPLE))
    table_writer.commit(table_writer.write(people(0, 5)), table_writer.write(people(100, 5), bucket=1))
    table = outside(lake, table_writer)
    assert len(list(table.scan(row_filter="id >= 100").plan_files())) == 1
    assert len(list(table.scan(row_filter="__offset > 10").plan_files())) == 0
    assert len(list(table.scan(row_filter="name == 'n3'").plan_files())) == 1


@pytest.mark.parametrize("primary_key", [[], ["id"]], ids=["log", "key"])
def test_a_column_that_is_added_is_null_in_old_files(lake: IcebergFormat, primary_key: list[str]) -> None:
    spec = spec_of(PEOPLE, primary_key=primary_key)
    table_writer = made(lake, spec)
    table_writer.commit(table_writer.write(people(0, 2)))
    before = table_writer.table.snapshot_id
    wider = spec_of({**PEOPLE, "city": StringType()}, primary_key=primary_key)
    for _ in range(2):  # the coordinator may die after the first time and repeat it
        lake.add_columns(spec.path, wider.descriptor.schema.columns[3:])
    again = LakeTableWriter(lake, type(spec)(spec.path, wider.descriptor))
    again.commit(again.write(people(2, 1, city="Ulm"), start=2))
    check_all_see(lake, again, [*people(0, 2, city=None), *people(2, 1, city="Ulm")])
    assert again.rows(again.table.plan_files(before)) == people(0, 2, city=None)
    assert again.rows(columns=["city"]) == [{"city": None}, {"city": None}, {"city": "Ulm"}]
    assert again.rows(columns=["city", "__bucket"])[0] == {"city": None, "__bucket": 0}


def test_rows_from_before_a_column_was_added_are_written_with_nulls(lake: IcebergFormat) -> None:
    """The log still has batches of the old schema when the lake table has the new column."""
    spec = spec_of(PEOPLE)
    table_writer = made(lake, spec)
    wider = spec_of({**PEOPLE, "city": StringType()})
    lake.add_columns(spec.path, wider.descriptor.schema.columns[3:])
    table_writer.table = table_writer.table.refreshed()
    table_writer.commit(table_writer.write(people(0, 2)))
    assert LakeTableWriter(lake, type(spec)(spec.path, wider.descriptor)).rows() == people(0, 2, city=None)
