"""Rows of a task: gathered, by name, with their kinds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from fluss.client.calls.table_info import TableInfo
from fluss.client.net.metadata import ClientTable
from fluss.errors import FlussError
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import TablePath
from fluss.model.schema import Column, Schema
from fluss.model.types import BigIntType, StringType
from fluss.spark.options.parsing import parse_options
from fluss.spark.write.plan import Kind, WritePlan
from fluss.spark.write.rows import MAX_GATHERED_BYTES, RowConverter, gather_bytes, gathered, row_kinds

MEGABYTE = 1024 * 1024
OPTIONS = parse_options({"bootstrap.servers": "localhost:1", "table": "shop.orders"})


def numbers(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, first + count), pa.int64())})


def test_small_batches_are_joined_and_large_ones_left_alone() -> None:
    batches = [numbers(0, 10), numbers(10, 0), numbers(10, 10), numbers(20, 100), numbers(120, 5)]
    joined = list(gathered(batches, 160))
    assert [batch.num_rows for batch in joined] == [20, 100, 5]
    assert joined[1] is batches[3]
    assert [value for batch in joined for value in batch.column(0).to_pylist()] == list(range(125))
    assert list(gathered([numbers(0, 0)], 160)) == []


def table(bucket_keys: tuple[str, ...] = (), *, partitioned: bool = False, keyed: bool = False) -> TableInfo:
    columns = (Column("id", BigIntType(nullable=False)), Column("region", StringType(nullable=False)))
    schema = Schema(columns, primary_key=("id", "region") if keyed else ())
    descriptor = TableDescriptor(
        schema, bucket_count=4, bucket_keys=bucket_keys, partition_keys=("region",) if partitioned else ()
    )
    return TableInfo(ClientTable(TablePath("shop", "orders"), 1, 1, descriptor, 0, 0))


def test_more_is_gathered_for_more_buckets() -> None:
    assert gather_bytes(table(), MEGABYTE) == MEGABYTE
    assert gather_bytes(table(("id",)), MEGABYTE) == 4 * MEGABYTE
    assert gather_bytes(table(keyed=True), MEGABYTE) == 4 * MEGABYTE
    assert gather_bytes(table(partitioned=True), MEGABYTE) == 4 * MEGABYTE
    assert gather_bytes(table(("id",), partitioned=True), 2 * MEGABYTE) == MAX_GATHERED_BYTES
    assert gather_bytes(table(("id",)), 2 * MAX_GATHERED_BYTES) == 2 * MAX_GATHERED_BYTES


def plan(kind: Kind, positions: tuple[int, ...], row_kind_position: int | None = None) -> WritePlan:
    columns = Schema((Column("id", BigIntType(nullable=False)), Column("name", StringType())))
    return WritePlan(OPTIONS, 1, kind, "upsert", columns, positions, row_kind_position)


def test_columns_by_position_with_the_names_and_types_of_the_table() -> None:
    batch = pa.record_batch({"op": ["+I"], "NAME": ["x"], "ID": pa.array([7], pa.int32())})
    rows = RowConverter(plan("upsert", (2, 1))).rows(batch)
    assert rows.to_pylist() == [{"id": 7, "name": "x"}]
    assert rows.schema.types == [pa.int64(), pa.string()]
    nulls = pa.record_batch({"name": ["x"], "id": pa.array([None], pa.int64())})
    with pytest.raises(FlussError, match=r"fit table shop.orders: column 'id' .BIGINT NOT NULL. must not be null"):
        RowConverter(plan("upsert", (1, 0))).rows(nulls)


def test_row_kinds_of_both_spellings() -> None:
    kinds = pa.array(["+I", "-u", "update_after", "Delete", " -D ", "insert", "UPDATE_BEFORE"])
    batch = pa.record_batch({"id": range(7), "name": ["n"] * 7, "op": kinds})
    rows, deletes = RowConverter(plan("changes", (0, 1), 2)).changes(batch)
    assert rows.column(0).to_pylist() == [0, 2, 3, 4, 5]
    assert deletes.to_pylist() == [False, False, True, True, False]
    for column, said in (
        (pa.array(["+I", "?"]), "row kind '[?]' .* must be one of"),
        (pa.array([None, "x"]), "1 rows"),
    ):
        with pytest.raises(FlussError, match=said):
            row_kinds(column, "t")
    assert row_kinds(pa.array([], pa.string()), "t").dtype == np.uint8


def test_keys_without_other_columns_can_only_be_deleted() -> None:
    batch = pa.record_batch({"id": [1, 2], "name": ["a", "b"], "op": ["-D", "delete"]})
    converter = RowConverter(plan("deletes", (0, 1), 2))
    assert converter.keys(batch).num_rows == 2
    with pytest.raises(FlussError, match=r"1 rows .* have a row kind other than delete"):
        converter.keys(batch.set_column(2, "op", pa.array(["-D", "+I"])))
