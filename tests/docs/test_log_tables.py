"""The log-table document (001, repeated without line breaks in 000) and the log-table part of the guide (003)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pandas as pd
import pyarrow as pa
import pytest

import fluss
from fluss import TablePath
from tests.docs.documents import Block, Reader, document, python_blocks

EVENTS = TablePath("fluss", "events")
WRITTEN_IDS = [1, 2, 3, 10, 11, 20, 21, 30, 31]


def table_of(*ids: int) -> pa.Table:
    values = {"id": list(ids), "name": [f"n{each}" for each in ids], "score": [each / 2 for each in ids]}
    return pa.table(values, schema=pa.schema([("id", pa.int32()), ("name", pa.string()), ("score", pa.float32())]))


@pytest.fixture
def blocks(request: pytest.FixtureRequest) -> Callable[[str, str], Block]:
    """A function: document and heading -> the first block under it, in its log-table part."""

    def find(number: str, heading: str) -> Block:
        text = document(number)
        if number == "003":
            text = text[text.index("\n## Log Tables") : text.index("\n## Primary Key Tables")]
        return next(block for block in python_blocks(text) if block.heading == heading)

    return find


@pytest.fixture(params=["001", "003"])
def written(request: pytest.FixtureRequest, reader: Reader, blocks: Callable[[str, str], Block]) -> str:
    """The number of a document whose table exists and whose writing block has run."""
    number: str = request.param
    reader.drop(EVENTS)
    reader.run(blocks("001", "Creating a Log Table"))
    record_batch = table_of(20, 21).to_batches()[0]
    reader.names.update(pa_table=table_of(10, 11), record_batch=record_batch, df=table_of(30, 31).to_pandas())
    reader.run(blocks(number, "Writing"))
    assert isinstance(reader.names["handle"], fluss.WriteResultHandle)
    return number


def test_writing_and_batch_read(reader: Reader, written: str, blocks: Callable[[str, str], Block]) -> None:
    reader.run(blocks(written, "Batch Read (One-Shot)"))
    arrow_table, frame = reader.names["arrow_table"], reader.names["df"]
    assert isinstance(arrow_table, pa.Table)
    assert arrow_table.column("id").to_pylist() == WRITTEN_IDS
    assert arrow_table.column("name").to_pylist()[:3] == ["Alice", "Bob", "Charlie"]
    assert arrow_table.column("score").to_pylist()[:3] == [95.5, 87.0, 91.0]
    # The second read of one scanner starts where the first ended: nothing is left.
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == ["id", "name", "score"]
    assert len(frame) == 0


def test_continuous_polling(reader: Reader, written: str, blocks: Callable[[str, str], Block]) -> None:
    reader.names["num_buckets"] = 1  # bound by the block before
    printed = reader.run_bounded(blocks(written, "Continuous Polling"), prints=1)
    frame, record = printed
    assert "Alice" in frame
    assert record == "offset=0, change=+A, row={'id': 1, 'name': 'Alice', 'score': 95.5}"


def test_unsubscribing(reader: Reader, written: str, blocks: Callable[[str, str], Block]) -> None:
    table = reader.names["table"]
    scanner = reader.wait(table.new_scan().create_log_scanner())
    scanner.subscribe(bucket_id=0, start_offset=fluss.EARLIEST_OFFSET)
    assert len(scanner.get_subscribed_buckets()) == 1
    reader.names["scanner"] = scanner
    reader.run(blocks("001", "Unsubscribing"))
    assert scanner.get_subscribed_buckets() == []


def test_subscribe_from_latest_offset(reader: Reader, written: str, blocks: Callable[[str, str], Block]) -> None:
    reader.run(blocks(written, "Subscribe from Latest Offset"))
    see_only_new_rows(reader)


def test_subscribe_from_latest_offset_of_the_document_without_line_breaks(reader: Reader, written: str) -> None:
    reader.run(Block("000", LATEST_OF_000))
    see_only_new_rows(reader)


def see_only_new_rows(reader: Reader) -> None:
    """The scanner of the reader, subscribed at the end, sees a row that is appended now and nothing else."""
    scanner, writer = reader.names["scanner"], reader.names["writer"]
    assert reader.names.get("latest", len(WRITTEN_IDS)) == len(WRITTEN_IDS)
    writer.append([99, "new", 1.0])
    reader.wait(writer.flush())
    seen: list[int] = []
    while not seen:
        seen += scanner.poll_arrow(timeout_ms=5000).column("id").to_pylist()
    assert seen == [99], "rows from before the subscription are skipped, later ones are seen"


def test_column_projection(reader: Reader, written: str, blocks: Callable[[str, str], Block]) -> None:
    by_index, by_name = blocks(written, "Column Projection").code.split("# or by name\n")
    for code in (by_index, by_name):
        reader.run(Block("Column Projection", code))
        scanner = reader.names["scanner"]
        scanner.subscribe(bucket_id=0, start_offset=fluss.EARLIEST_OFFSET)
        result = scanner.to_arrow()
        assert result.column_names == ["id", "score"]
        assert result.column("id").to_pylist() == WRITTEN_IDS


def test_the_quick_start(reader: Reader, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = (block for block in python_blocks(document("003")) if block.heading == "Quick Start")
    reader.drop(TablePath("fluss", "quick_start"))
    reader.run(block)
    output = capsys.readouterr().out
    assert "Alice" in output
    assert "Bob" in output
    assert not reader.wait(reader.names["admin"].table_exists(TablePath("fluss", "quick_start")))


def test_partitioned_tables(reader: Reader, capsys: pytest.CaptureFixture[str]) -> None:
    text = document("003")
    text = text[text.index("\n## Partitioned Tables") : text.index("\n### Partitioned Primary Key Tables")]
    reader.drop(TablePath("fluss", "partitioned_events"))
    for block in python_blocks(text):
        reader.run(block)
    output = capsys.readouterr().out
    assert re.search(r"1\s+US\s+100", output)
    assert re.search(r"2\s+EU\s+200", output)


def test_every_data_type_of_the_guide(reader: Reader) -> None:
    """The table under "Data Types": what Arrow type, what Fluss type, which Python values go in and come out."""
    import datetime
    import decimal

    rows = re.findall(r"^\| `pa\.(.+?)`.* \| (.+?) \| `(.+?)` \|$", document("003"), re.MULTILINE)
    assert len(rows) == 10
    utc = datetime.UTC
    columns: list[tuple[str, pa.DataType, object]] = [
        ("boolean", pa.bool_(), True),
        ("tinyint", pa.int8(), -128),
        ("smallint", pa.int16(), -32768),
        ("int", pa.int32(), -(2**31)),
        ("bigint", pa.int64(), 2**63 - 1),
        ("float", pa.float32(), 0.5),
        ("double", pa.float64(), 0.1),
        ("string", pa.string(), "Grüße"),
        ("bytes", pa.binary(), b"\x00\xff"),
        ("date", pa.date32(), datetime.date(2024, 2, 29)),
        ("time(3)", pa.time32("ms"), datetime.time(23, 59, 59, 999000)),
        ("timestamp", pa.timestamp("us"), datetime.datetime(2024, 2, 29, 1, 2, 3, 456789)),
        ("timestamp_ltz", pa.timestamp("us", tz="UTC"), datetime.datetime(2024, 2, 29, 1, 2, 3, 456789, utc)),
        ("decimal(10,2)", pa.decimal128(10, 2), decimal.Decimal("-12345678.90")),
    ]
    schema = fluss.Schema(pa.schema([(f"c{index}", kind) for index, (_, kind, _) in enumerate(columns)]))
    assert schema.get_column_types() == [name for name, _, _ in columns]
    path = TablePath("fluss", "guide_types")
    reader.drop(path)
    row = {f"c{index}": value for index, (_, _, value) in enumerate(columns)}

    async def round_trip() -> list[dict[str, object]]:
        await reader.names["admin"].create_table(path, fluss.TableDescriptor(schema))
        table = await reader.names["conn"].get_table(path)
        writer = table.new_append().create_writer()
        writer.append(row)
        writer.append(dict.fromkeys(row))
        await writer.flush()
        scanner = await table.new_scan().create_log_scanner()
        scanner.subscribe(0, fluss.EARLIEST_OFFSET)
        found: list[dict[str, object]] = []
        while len(found) < 2:
            found += [record.row for record in scanner.poll(5000)]
            await asyncio.sleep(0)
        return found

    assert reader.wait(round_trip()) == [row, dict.fromkeys(row)]


# Document 000 has lost its line breaks. Where it differs from 001, this is its code with the breaks put back.
POLLING_OF_000 = """
# Record scanner: poll individual records
scanner = await table.new_scan().create_log_scanner()
scanner.subscribe_buckets({i: fluss.EARLIEST_OFFSET for i in range(num_buckets)})

while True:
    scan_records = scanner.poll(timeout_ms=5000)

    for record in scan_records:
        print(f"offset={record.offset}, change={record.change_type.short_string()}, row={record.row}")

    # Or per-bucket access (dict-like)
    for bucket, records in scan_records.items():
        for record in records:
            print(f"bucket={bucket.bucket_id}, offset={record.offset}, row={record.row}")
"""
LATEST_OF_000 = """
admin = await conn.get_admin()
offsets = await admin.list_offsets(table_path, [0], fluss.OffsetSpec.latest())
latest = offsets[0]

scanner = await table.new_scan().create_record_batch_log_scanner()
scanner.subscribe(bucket_id=0, start_offset=latest)
"""


def without_blanks(text: str) -> str:
    return re.sub(r"\s+", "", text)


def test_the_document_without_line_breaks_has_the_same_code() -> None:
    flat = without_blanks(document("000"))
    different = []
    for block in python_blocks(document("001")):
        if without_blanks(block.code) not in flat:
            different.append(block.heading)
    assert different == ["Continuous Polling", "Subscribe from Latest Offset"]
    assert without_blanks(POLLING_OF_000) in flat
    assert without_blanks(LATEST_OF_000) in flat


def test_continuous_polling_of_the_document_without_line_breaks(
    reader: Reader, written: str, blocks: Callable[[str, str], Block]
) -> None:
    reader.names["num_buckets"] = 1
    printed = reader.run_bounded(Block("000", POLLING_OF_000), prints=2 * len(WRITTEN_IDS))
    assert printed[0] == "offset=0, change=+A, row={'id': 1, 'name': 'Alice', 'score': 95.5}"
    assert "bucket=0, offset=1, row={'id': 2, 'name': 'Bob', 'score': 87.0}" in printed
    assert [line for line in printed if line.startswith("offset=")] == [
        line.replace("bucket=0, ", "").replace(", row", ", change=+A, row")
        for line in printed
        if line.startswith("bucket=")
    ]


def test_writing_to_a_partition_that_does_not_exist(reader: Reader) -> None:
    """The guide lists it among the errors; a wait without end would be no error."""
    path = TablePath("fluss", "guide_missing_partition")
    reader.drop(path)
    schema = fluss.Schema(pa.schema([("id", pa.int32()), ("region", pa.string())]))

    async def body() -> None:
        await reader.names["admin"].create_table(path, fluss.TableDescriptor(schema, partition_keys=["region"]))
        writer = (await reader.names["conn"].get_table(path)).new_append().create_writer()
        handle = writer.append({"id": 1, "region": "US"})
        with pytest.raises(fluss.FlussError) as caught:
            await handle.wait()
        assert caught.value.error_code == fluss.ErrorCode.PARTITION_NOT_EXISTS

    reader.wait(body())


def test_a_row_that_does_not_fit_the_schema(reader: Reader, written: str) -> None:
    """The guide's "Schema mismatch"."""
    writer = reader.names["writer"]
    with pytest.raises(fluss.FlussError, match=r"id.*'one'"):
        writer.append({"id": "one", "name": "x", "score": 1.0})
    with pytest.raises(fluss.FlussError):
        writer.append([1, "x"])
