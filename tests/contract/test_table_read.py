"""`to_arrow()` of whole tables, and scans of the first rows of a bucket: the same rows on every server."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

import fluss
import fluss.aio
from fluss import FlussConnection, FlussError, col
from tests.support.servers.targets import Target
from tests.support.tables.kv_tables import KvTable, user
from tests.support.tables.scan_tables import ROWS, ScanTable, rows_of


@pytest.fixture
def table(connection: FlussConnection, table_name: str) -> KvTable:
    table = KvTable(connection, table_name, bucket_count=3)
    table.write([user(number) for number in range(400)])
    table.write([user(5, "five")], deleted=[{"id": number} for number in range(100, 200)])
    return table


CURRENT = [user(n, "five" if n == 5 else None) for n in range(400) if not 100 <= n < 200]


def test_the_current_rows_of_a_primary_key_table(table: KvTable) -> None:
    assert table.rows() == CURRENT
    found = table.run(table.table.to_arrow)
    assert found.schema == table.table.arrow_schema
    table.write([user(5, "six")], deleted=[{"id": 0}])
    assert table.rows(filter=col("id") <= 5) == [*CURRENT[1:5], user(5, "six")]


def test_columns_filter_and_limit(table: KvTable) -> None:
    assert table.rows(["name"], filter=col("id") == 5) == [{"name": "five"}]
    assert table.rows(["score", "id"], filter=col("score") < 1) == [{"score": n / 2, "id": n} for n in range(2)]
    assert len(table.rows(limit=10)) == 10
    assert len(table.rows(limit=1000)) == len(CURRENT)
    few = table.rows(["id"], limit=3, filter=col("id") >= 390)
    assert len(few) == 3
    assert all(row["id"] >= 390 for row in few)
    with pytest.raises(FlussError, match="unknown column"):
        table.rows(["nope"])
    with pytest.raises(FlussError, match="greater than 0"):
        table.rows(limit=0)
    with pytest.raises(FlussError):
        table.rows(filter=col("nope") == 1)


def test_frames(table: KvTable) -> None:
    pytest.importorskip("pandas", reason="to_pandas() needs pandas, which is an extra")
    frame = table.run(lambda: table.table.to_pandas(["id"], filter=col("id") < 3))
    assert sorted(frame["id"]) == [0, 1, 2]
    polars = pytest.importorskip("polars", reason="to_polars() needs polars, which is an extra")
    assert isinstance(table.run(table.table.to_polars), polars.DataFrame)


def test_an_empty_primary_key_table(connection: FlussConnection, table_name: str) -> None:
    assert KvTable(connection, table_name, bucket_count=2).rows() == []


def test_a_log_table(connection: FlussConnection, table_name: str) -> None:
    table = ScanTable(connection, table_name, bucket_count=3)
    assert asyncio.run(table.table.to_arrow()) == ROWS.empty_table()
    table.write(rows_of(range(500)))
    assert asyncio.run(table.table.to_arrow()).sort_by("id") == rows_of(range(500))
    assert asyncio.run(table.table.to_arrow(["id"], filter=col("id") >= 498)).column("id").to_pylist() == [498, 499]
    assert asyncio.run(table.table.to_arrow(limit=17)).num_rows == 17


def test_a_partitioned_log_table_without_partitions(connection: FlussConnection, table_name: str) -> None:
    table = ScanTable(connection, table_name, partition_keys=["name"])
    assert asyncio.run(table.table.to_arrow()).num_rows == 0


def test_first_rows_of_a_bucket(connection: FlussConnection, table_name: str) -> None:
    table = KvTable(connection, table_name, bucket_count=1)
    bucket = fluss.TableBucket(table.table.get_table_info().table_id, 0)
    assert table.table.new_scan().limit(3).create_bucket_batch_scanner(bucket).to_arrow().to_pylist() == []
    table.write([user(number) for number in range(1, 60)], deleted=[{"id": 1}])
    scanner = table.table.new_scan().limit(3).create_bucket_batch_scanner(bucket)
    assert scanner.to_arrow().to_pylist() == [user(2), user(3), user(4)]
    assert scanner.next_batch() is None
    named = table.table.new_scan().project_by_name(["name"]).limit(1)
    assert named.create_bucket_batch_scanner(bucket).to_arrow().to_pylist() == [{"name": "name 2"}]
    assert len(table.table.new_scan().limit(1000).create_bucket_batch_scanner(bucket).to_arrow()) == 58


def test_first_rows_with_aio(target: Target, connection: FlussConnection, table_name: str) -> None:
    KvTable(connection, table_name, bucket_count=1).write([user(number) for number in range(1, 6)])

    async def body() -> Any:
        async with await fluss.aio.FlussConnection.create(target.config()) as aio:
            table = await aio.get_table(fluss.aio.TablePath("fluss", table_name))
            bucket = fluss.aio.TableBucket(table.get_table_info().table_id, 0)
            return await table.new_scan().limit(2).create_bucket_batch_scanner(bucket).to_arrow()

    assert asyncio.run(body()).to_pylist() == [user(1), user(2)]


def test_a_large_table(connection: FlussConnection, table_name: str) -> None:
    schema = pa.schema([("id", pa.int32()), ("text", pa.string())])
    table = KvTable(connection, table_name, schema, bucket_count=2)
    table.write([{"id": number, "text": "x" * 1000} for number in range(10_000)])  # several batches per bucket
    found = table.run(table.table.to_arrow)
    assert sorted(found.column("id").to_pylist()) == list(range(10_000))
    assert table.run(lambda: table.table.to_arrow(limit=9_999)).num_rows == 9_999
