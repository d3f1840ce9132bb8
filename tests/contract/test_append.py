"""Appending rows, Arrow batches and data frames: the same on every server."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import threading
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss import ErrorCode, FlussConnection, FlussError, FlussTable, TablePath
from fluss.codec.keys.bucketing import fluss_bucket
from fluss.codec.keys.encoding import KeyEncoding, encode_key
from fluss.model.types import StringType
from tests.support.servers.targets import Target
from tests.support.tables.log_reader import read_batches, read_rows, read_table
from tools.waiting import patience

UTC = datetime.UTC
SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("score", pa.float32())])
WAIT_SECONDS = patience(60.0)


async def create(connection: FlussConnection, name: str, schema: Any = SCHEMA, **options: Any) -> FlussTable:
    path = TablePath("fluss", name)
    fields = schema if isinstance(schema, fluss.Schema) else fluss.Schema(schema)
    await connection.get_admin().create_table(path, fluss.TableDescriptor(fields, **options))
    return await connection.get_table(path)


def new_table(connection: FlussConnection, name: str, schema: Any = SCHEMA, **options: Any) -> FlussTable:
    return asyncio.run(create(connection, name, schema, **options))


def test_the_writing_of_the_documents(connection: FlussConnection, table_name: str) -> None:
    async def body() -> None:
        table = await create(connection, table_name, bucket_count=1)
        writer = table.new_append().create_writer()
        writer.append({"id": 1, "name": "Alice", "score": 95.5})
        writer.append([2, "Bob", 87.0])
        await writer.flush()
        handle = writer.append({"id": 3, "name": "Charlie", "score": 91.0})
        await handle.wait()
        assert handle.is_done
        rows = {"id": [4, 5], "name": ["D", None], "score": [1.0, None]}
        writer.write_arrow(pa.table(rows, schema=SCHEMA))
        await writer.write_arrow_batch(pa.record_batch(rows, schema=SCHEMA)).wait()
        other = await table.new_append_writer()
        async with other:
            other.append((6, "E", 2.0))

    asyncio.run(body())
    rows = read_rows(connection, TablePath("fluss", table_name))
    assert [row["id"] for row in rows] == [1, 2, 3, 4, 5, 4, 5, 6]
    assert rows[1] == {"id": 2, "name": "Bob", "score": 87.0}
    assert rows[4] == {"id": 5, "name": None, "score": None}


def test_every_type_comes_back(connection: FlussConnection, table_name: str) -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
    columns: dict[str, tuple[pa.DataType, Any, Any]] = {
        "bool": (pa.bool_(), True, True),
        "i8": (pa.int8(), -128, -128),
        "i16": (pa.int16(), 32767, 32767),
        "i32": (pa.int32(), -(2**31), -(2**31)),
        "i64": (pa.int64(), 2**63 - 1, 2**63 - 1),
        "f32": (pa.float32(), 1.5, 1.5),
        "f64": (pa.float64(), 0.1, 0.1),
        "text": (pa.string(), "é€𝄞", "é€𝄞"),
        "bytes": (pa.binary(), b"\x00\xff", b"\x00\xff"),
        "date": (pa.date32(), moment.date(), moment.date()),
        "time": (pa.time32("ms"), datetime.time(1, 2, 3, 456000), datetime.time(1, 2, 3, 456000)),
        "ntz": (pa.timestamp("us"), moment, moment),
        "ltz": (pa.timestamp("us", "UTC"), moment.replace(tzinfo=UTC), moment.replace(tzinfo=UTC)),
        "ltz_naive": (pa.timestamp("us", "UTC"), moment, moment.replace(tzinfo=UTC)),
        "ms": (pa.timestamp("ms"), moment.replace(microsecond=678000), moment.replace(microsecond=678000)),
        "number": (pa.decimal128(10, 2), decimal.Decimal("-12.3"), decimal.Decimal("-12.30")),
        "array": (pa.list_(pa.int32()), [1, None, 3], [1, None, 3]),
        "map": (pa.map_(pa.string(), pa.int32()), {"k": 1}, [("k", 1)]),
        "row": (pa.struct([("a", pa.int32()), ("b", pa.string())]), {"a": 1}, {"a": 1, "b": None}),
    }
    schema = pa.schema([(name, kind) for name, (kind, _, _) in columns.items()])
    writer = new_table(connection, table_name, schema, bucket_count=1).new_append().create_writer()
    writer.append({name: value for name, (_, value, _) in columns.items()})
    writer.append([value for _, value, _ in columns.values()])
    writer.append({})
    writer.flush().result(WAIT_SECONDS)
    rows = read_rows(connection, TablePath("fluss", table_name))
    expected = {name: value for name, (_, _, value) in columns.items()}
    assert rows == [expected, expected, dict.fromkeys(columns)]


@pytest.mark.parametrize("kind", ["NONE", "LZ4_FRAME", "ZSTD", "INDEXED", "COMPACTED"])
def test_compressions_and_formats(connection: FlussConnection, table_name: str, kind: str) -> None:
    options: dict[str, Any] = {"properties": {"table.log.arrow.compression.type": kind}}
    if kind in ("INDEXED", "COMPACTED"):
        options = {"log_format": kind}
    table = new_table(connection, table_name, bucket_count=1, **options)
    writer = table.new_append().create_writer()
    rows = [{"id": number, "name": "text " * (number % 30), "score": None} for number in range(40_000)]
    for row in rows:
        writer.append(row)
    writer.flush().result(WAIT_SECONDS)
    assert read_rows(connection, TablePath("fluss", table_name)) == rows
    assert asyncio.run(table.to_arrow()).to_pylist() == rows


def test_statistics_make_batches_of_version_one(target: Target, connection: FlussConnection, table_name: str) -> None:
    if target.is_apache:
        pytest.skip("Apache Fluss 0.9.1 does not know table.statistics.columns")
    properties = {"table.statistics.columns": "id,name"}
    writer = new_table(connection, table_name, bucket_count=1, properties=properties).new_append().create_writer()
    writer.append((1, "x", 1.0)).wait().result(WAIT_SECONDS)
    [batch] = read_batches(connection, TablePath("fluss", table_name))
    assert batch.header.magic == 1
    assert batch.header.statistics_length > 0


def test_bucket_keys_decide_the_bucket(connection: FlussConnection, table_name: str) -> None:
    table = new_table(connection, table_name, bucket_count=3, bucket_keys=["name"])
    writer = table.new_append().create_writer()
    names = [*"abcdefghij", "né", "日本", ""]
    for number, name in enumerate(names):
        writer.append((number, name, None))
    writer.write_arrow(pa.table({"name": names, "id": range(100, 100 + len(names))}))
    writer.flush().result(WAIT_SECONDS)
    count = 0
    for bucket in range(3):
        for row in read_rows(connection, TablePath("fluss", table_name), bucket):
            key = encode_key([row["name"]], [StringType()], KeyEncoding.COMPACTED)
            assert fluss_bucket(key, 3) == bucket
            count += 1
    assert count == 2 * len(names)
    with pytest.raises(FlussError, match="decides where a row goes"):
        writer.append((1, None, 1.0))


def test_keyless_rows_stick_or_go_round(target: Target, connection: FlussConnection, table_name: str) -> None:
    path = TablePath("fluss", table_name)
    writer = new_table(connection, table_name, bucket_count=3).new_append().create_writer()
    for number in range(30):
        writer.append((number, "x", 1.0)).wait().result(WAIT_SECONDS)
    assert sorted(len(read_rows(connection, path, bucket)) for bucket in range(3)) == [0, 0, 30]
    with FlussConnection.open(target.config(**{"writer.bucket.no-key-assigner": "round_robin"})) as other:
        round_robin = asyncio.run(other.get_table(path)).new_append().create_writer()
        for number in range(30):
            round_robin.append((number, "x", 1.0))
        round_robin.flush().result(WAIT_SECONDS)
    assert sorted(len(read_rows(connection, path, bucket)) for bucket in range(3)) == [10, 10, 40]
    small = {"writer.batch-size": "10000", "writer.buffer.memory-size": "20000", "writer.request-max-size": "20000"}
    with FlussConnection.open(target.config(**small)) as other:
        sticky = asyncio.run(other.get_table(path)).new_append().create_writer()
        for number in range(20_000):
            sticky.append((number, "some text", 1.0))
        sticky.flush().result(WAIT_SECONDS)
    counts = [len(read_rows(connection, path, bucket)) for bucket in range(3)]
    assert sum(counts) == 20_060
    assert min(counts) > 1_000  # full batches moved on to other buckets


def test_partitions(target: Target, connection: FlussConnection, table_name: str) -> None:
    path = TablePath("fluss", table_name)
    table = new_table(connection, table_name, partition_keys=["name"], bucket_count=2, bucket_keys=["id"])
    admin = connection.get_admin()

    async def prepare() -> None:
        for name in ("US", "EU"):
            await admin.create_partition(path, {"name": name})

    asyncio.run(prepare())
    writer = table.new_append().create_writer()
    for number in range(100):
        writer.append({"id": number, "name": "US" if number % 2 else "EU"})
    writer.write_arrow(pa.table({"id": [100, 101, 102], "name": ["EU", "US", "EU"]}))
    writer.flush().result(WAIT_SECONDS)
    for name, rest in (("US", 1), ("EU", 0)):
        ids = [row["id"] for bucket in range(2) for row in read_rows(connection, path, bucket, name)]
        assert sorted(ids) == [number for number in range(103) if number % 2 == rest]
    handle = writer.append({"id": 1, "name": "Asia"})
    with pytest.raises(FlussError, match="Asia") as caught:
        handle.wait().result(WAIT_SECONDS)
    assert caught.value.error_code == ErrorCode.PARTITION_NOT_EXISTS
    writer.append({"id": 1000, "name": "US"}).wait().result(WAIT_SECONDS)  # others go on
    asyncio.run(admin.create_partition(path, {"name": "Asia"}))
    writer.append({"id": 1, "name": "Asia"}).wait().result(WAIT_SECONDS)
    with FlussConnection.open(target.config(**{"writer.dynamic-create-partition.enabled": "true"})) as other:
        dynamic = asyncio.run(other.get_table(path)).new_append().create_writer()
        dynamic.append({"id": 1, "name": "made"}).wait().result(WAIT_SECONDS)
        assert len(read_rows(other, path, 0, "made") + read_rows(other, path, 1, "made")) == 1


def test_threads_and_tasks_share_a_writer(connection: FlussConnection, table_name: str) -> None:
    path = TablePath("fluss", table_name)
    writer = new_table(connection, table_name, bucket_count=2, bucket_keys=["name"]).new_append().create_writer()
    threads_count, tasks_count, rows_count = 3, 20, 3_000

    def in_a_thread(name: int) -> None:
        for number in range(rows_count):
            writer.append((number, f"thread {name}", None))

    async def in_a_task(name: int) -> None:
        for number in range(20):
            await writer.append((number, f"task {name}", None)).wait()

    async def tasks() -> None:
        await asyncio.gather(*map(in_a_task, range(tasks_count)))

    threads = [threading.Thread(target=in_a_thread, args=(name,)) for name in range(threads_count)]
    for thread in threads:
        thread.start()
    asyncio.run(tasks())
    for thread in threads:
        thread.join()
    writer.flush().result(WAIT_SECONDS)
    numbers: dict[str, list[int]] = {}
    for row in read_table(connection, path, 2):
        numbers.setdefault(row["name"], []).append(row["id"])
    assert len(numbers) == threads_count + tasks_count
    for name, values in numbers.items():
        assert values == list(range(20 if name.startswith("task") else rows_count)), name


def test_batches_are_numbered_without_gaps(connection: FlussConnection, table_name: str) -> None:
    writer = new_table(connection, table_name, bucket_count=1).new_append().create_writer()
    for number in range(50):
        writer.append((number, "x", 1.0)).wait().result(WAIT_SECONDS)
    headers = [batch.header for batch in read_batches(connection, TablePath("fluss", table_name))]
    assert [header.batch_sequence for header in headers] == list(range(50))
    assert len({header.writer_id for header in headers}) == 1
    assert headers[0].writer_id >= 0


def test_a_bad_row_fails_at_its_call_and_others_go_on(connection: FlussConnection, table_name: str) -> None:
    writer = new_table(connection, table_name, bucket_count=1).new_append().create_writer()
    writer.append((1, "x", 1.0))
    with pytest.raises(FlussError, match=r"column 'id' expects INT, got '2' \(str\)"):
        writer.append({"id": "2"})
    writer.append((3, "x", 1.0))
    writer.flush().result(WAIT_SECONDS)
    assert [row["id"] for row in read_rows(connection, TablePath("fluss", table_name))] == [1, 3]


def test_a_dropped_table_is_reported(connection: FlussConnection, table_name: str) -> None:
    path = TablePath("fluss", table_name)
    writer = new_table(connection, table_name, bucket_count=1).new_append().create_writer()
    writer.append((1, "x", 1.0)).wait().result(WAIT_SECONDS)
    asyncio.run(connection.get_admin().drop_table(path))
    with pytest.raises(FlussError) as caught:
        writer.append((2, "x", 1.0)).wait().result(WAIT_SECONDS)
    assert caught.value.error_code == ErrorCode.TABLE_NOT_EXIST
    new_table(connection, table_name, bucket_count=1)
    with pytest.raises(FlussError, match="dropped and created again") as caught:
        writer.append((3, "x", 1.0)).wait().result(WAIT_SECONDS)
    assert caught.value.error_code == ErrorCode.TABLE_NOT_EXIST


def test_closing_the_connection_writes_what_was_appended(
    target: Target, connection: FlussConnection, table_name: str
) -> None:
    path = TablePath("fluss", table_name)
    new_table(connection, table_name, bucket_count=1)
    with FlussConnection.open(target.config()) as other:
        writer = asyncio.run(other.get_table(path)).new_append().create_writer()
        for number in range(5_000):
            writer.append((number, "x", 1.0))
    assert len(read_rows(connection, path)) == 5_000
    with pytest.raises(FlussError, match="closed"):
        writer.append((1, "x", 1.0))
    with pytest.raises(FlussError, match="closed"):
        writer.write_arrow_batch(pa.record_batch({"id": [1]}))


def test_a_closed_writer_takes_no_rows_and_loses_none(connection: FlussConnection, table_name: str) -> None:
    table = new_table(connection, table_name, bucket_count=1)
    with table.new_append().create_writer() as writer:
        writer.append((1, "x", 1.0))
    writer.append((2, "x", 1.0))
    writer.close()
    with pytest.raises(FlussError, match="is closed"):
        writer.append((3, "x", 1.0))
    dropped = table.new_append().create_writer()
    handle = dropped.append((4, "x", 1.0))
    del dropped, writer
    handle.wait().result(WAIT_SECONDS)
    assert Counter(row["id"] for row in read_rows(connection, TablePath("fluss", table_name))) == Counter([1, 2, 4])


def test_what_is_closed_says_so(connection: FlussConnection, table_name: str) -> None:
    table, path = new_table(connection, table_name), TablePath("fluss", table_name)

    async def body() -> None:
        writer = table.new_append().create_writer()
        assert "closed" not in repr(writer)
        with pytest.warns(RuntimeWarning, match=r"the result of close\(\) was dropped"):
            writer.close()
        assert repr(writer) == f"AppendWriter('{path}', closed)"
        scanner = await table.new_scan().create_log_scanner()
        assert not scanner.is_partitioned()
        scanner.close()
        assert repr(scanner) == f"LogScanner(table={path}, records, closed)"

    asyncio.run(body())


def test_coroutines_wait_for_room(target: Target, table_name: str) -> None:
    options = {"writer.buffer.memory-size": "100000", "writer.batch-size": "20000"}

    async def body() -> int:
        async with await FlussConnection.create(target.config(**options)) as connection:
            writer = (await create(connection, table_name, bucket_count=1)).new_append().create_writer()
            for number in range(20_000):
                if number % 100 == 0:
                    await writer.ready()
                writer.append((number, "some text", 1.0))
            await writer.flush()
            return await asyncio.to_thread(lambda: len(read_rows(connection, TablePath("fluss", table_name))))

    assert asyncio.run(body()) == 20_000


def test_data_frames(connection: FlussConnection, table_name: str) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is an optional dependency")
    writer = new_table(connection, table_name, bucket_count=1).new_append().create_writer()
    writer.write_pandas(pandas.DataFrame({"name": ["a", None], "id": [1, 2], "score": [1.5, 2.5]}))
    writer.flush().result(WAIT_SECONDS)
    rows = read_rows(connection, TablePath("fluss", table_name))
    assert rows == [{"id": 1, "name": "a", "score": 1.5}, {"id": 2, "name": None, "score": 2.5}]
