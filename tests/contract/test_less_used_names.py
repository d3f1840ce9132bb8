"""Names that have a better known sister, and values that other tests only pass on: each does what its text says."""

from __future__ import annotations

import asyncio

import pyarrow as pa

import fluss
import fluss.aio
from fluss import ColumnRef, DataField, DataTypes, Predicate, SchemaInfo
from tests.support.servers.targets import Target
from tests.support.tables.scan_tables import ROWS, WAIT_MS, rows_of


def test_batch_scanners_by_their_second_names(connection: fluss.FlussConnection, table_name: str) -> None:
    async def body() -> fluss.FlussTable:
        path = fluss.TablePath("fluss", table_name)
        await connection.get_admin().create_table(path, fluss.TableDescriptor(fluss.Schema(ROWS), bucket_count=1))
        table = await connection.get_table(path)
        writer = table.new_append().create_writer()
        writer.write_arrow(rows_of(range(20)))
        await writer.flush()
        return table

    table = asyncio.run(body())
    scan: fluss.TableScan = table.new_scan()
    scanner = asyncio.run(opened(scan))
    scanner.subscribe(0, fluss.EARLIEST_OFFSET)
    assert scanner.to_arrow() == rows_of(range(20))
    limited = scan.limit(5).create_bucket_batch_scanner(fluss.TableBucket(table.get_table_info().table_id, 0))
    assert isinstance(limited, fluss.BatchScanner)
    assert sum(len(batch.batch) for batch in limited.collect_all_batches()) == 5


async def opened(scan: fluss.TableScan) -> fluss.LogScanner:
    return await scan.create_batch_scanner()


def test_awaited_batch_scanners_by_their_second_names(target: Target, table_name: str) -> None:
    async def body() -> None:
        async with await fluss.aio.FlussConnection.create(target.config()) as connection:
            path = fluss.aio.TablePath("fluss", table_name)
            admin = connection.get_admin()
            await admin.create_table(path, fluss.aio.TableDescriptor(fluss.aio.Schema(ROWS), bucket_count=1))
            table = await connection.get_table(path)
            writer = table.new_append().create_writer()
            writer.write_arrow(rows_of(range(20)))
            await writer.flush()
            scan = table.new_scan()
            assert isinstance(scan, fluss.aio.TableScan)
            scanner = await scan.create_batch_scanner()
            scanner.subscribe(0, fluss.aio.EARLIEST_OFFSET)
            seen: list[pa.RecordBatch] = []
            while sum(map(len, seen)) < 20:
                seen += [found.batch for found in await scanner.poll_batches(WAIT_MS)]
            assert pa.Table.from_batches(seen) == rows_of(range(20))
            bucket = fluss.aio.TableBucket(table.get_table_info().table_id, 0)
            limited = scan.limit(5).create_bucket_batch_scanner(bucket)
            assert isinstance(limited, fluss.aio.BatchScanner)
            assert sum(len(batch.batch) for batch in await limited.collect_all_batches()) == 5

    asyncio.run(body())


def test_a_condition_and_its_opposite_by_name(target: Target, table_name: str) -> None:
    column = fluss.col("id")
    assert isinstance(column, ColumnRef)
    assert column.name == "id"
    small: Predicate = column < 7
    opposite = small.not_()
    assert str(opposite) == str(~small)
    assert str(opposite.not_()) == str(small)
    with fluss.connect(target.bootstrap_servers) as db:
        db.create_table(table_name, ROWS)
        db.append(table_name, rows_of(range(10)))
        assert db.to_arrow(table_name, where=opposite)["id"].to_pylist() == [7, 8, 9]


def test_a_schema_comes_with_its_id_and_fields_with_descriptions(
    connection: fluss.FlussConnection, table_name: str
) -> None:
    field = DataTypes.field("city", DataTypes.string(), "where it goes")
    assert isinstance(field, DataField)
    assert field.description == "where it goes"
    schema = fluss.Schema.builder().column("id", DataTypes.bigint()).column("to", DataTypes.row([field])).build()

    async def body() -> SchemaInfo:
        admin, path = connection.get_admin(), fluss.TablePath("fluss", table_name)
        await admin.create_table(path, fluss.TableDescriptor(schema))
        return await admin.get_table_schema(path)

    found = asyncio.run(body())
    assert isinstance(found, SchemaInfo)
    assert found.schema_id == 1
    assert found.schema.get_column_names() == ["id", "to"]


def test_writers_and_frames_by_their_second_names(connection: fluss.FlussConnection, table_name: str) -> None:
    async def body() -> None:
        admin = connection.get_admin()
        path, keyed = fluss.TablePath("fluss", table_name), fluss.TablePath("fluss", f"{table_name}_keyed")
        await admin.create_table(path, fluss.TableDescriptor(fluss.Schema(ROWS), bucket_count=1))
        await admin.create_table(keyed, fluss.TableDescriptor(fluss.Schema(ROWS, primary_keys=["id"]), bucket_count=1))
        table = await connection.get_table(path)
        writer = fluss.AppendWriter.create(table._session, table._table)
        for row in rows_of(range(3)).to_pylist():
            # Instances have a quicker function of the same name in its place.
            await fluss.AppendWriter.append(writer, row).wait()
        scanner = await table.new_scan().create_record_batch_log_scanner()
        scanner.subscribe(0, fluss.EARLIEST_OFFSET)
        assert scanner.to_polars()["id"].to_list() == [0, 1, 2]
        limited = table.new_scan().limit(2)
        bucket = fluss.TableBucket(table.get_table_info().table_id, 0)
        assert len(limited.create_bucket_batch_scanner(bucket).to_pandas()) == 2
        upserts = (await connection.get_table(keyed)).new_upsert()
        assert isinstance(upserts, fluss.TableUpsert)
        upserts.write_arrow_batch(rows_of(range(4)).to_batches()[0])
        await upserts.flush()
        found = await (await connection.get_table(keyed)).to_arrow()
        assert sorted(found["id"].to_pylist()) == [0, 1, 2, 3]

    asyncio.run(body())


def test_awaited_frames_of_polars(target: Target, table_name: str) -> None:
    async def body() -> None:
        async with await fluss.aio.FlussConnection.create(target.config()) as connection:
            path = fluss.aio.TablePath("fluss", table_name)
            descriptor = fluss.aio.TableDescriptor(fluss.aio.Schema(ROWS), bucket_count=1)
            await connection.get_admin().create_table(path, descriptor)
            table = await connection.get_table(path)
            writer = table.new_append().create_writer()
            writer.write_arrow(rows_of(range(3)))
            await writer.flush()
            scanner = await table.new_scan().create_record_batch_log_scanner()
            scanner.subscribe(0, fluss.aio.EARLIEST_OFFSET)
            assert (await scanner.to_polars())["id"].to_list() == [0, 1, 2]

    asyncio.run(body())
