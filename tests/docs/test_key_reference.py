"""What the references (documents 002 and 004) say about primary-key tables, tried on every server."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss import ChangeType, DataTypes, TableBucket, TablePath
from tests.docs.documents import Reader, document, python_blocks

PATH = TablePath("fluss", "reference_users")
MOMENT = datetime.datetime(2024, 2, 29, 1, 2, 3, 456789)

# The headings of the guide with Python under them, in its order. Each block is run by a test of this folder.
GUIDE_BLOCKS = [
    "Quick Start", "Connection Setup", "Connection Setup", "Admin Operations", "Databases", "Tables", "Offsets",
    "Writing", "Batch Read (One-Shot)", "Continuous Polling", "Subscribe from Latest Offset", "Column Projection",
    "Creating", "Upsert, Delete, Lookup", "Partial Updates", "Creating and Managing Partitions", "Writing", "Reading",
    "Partitioned Primary Key Tables", "Error Handling",
]  # fmt: skip

TYPES: dict[str, tuple[Callable[[], Any], Any]] = {
    "boolean": (DataTypes.boolean, True),
    "tinyint": (DataTypes.tinyint, -128),
    "smallint": (DataTypes.smallint, 32767),
    "int": (DataTypes.int, -(2**31)),
    "bigint": (DataTypes.bigint, 2**63 - 1),
    "float": (DataTypes.float, 0.5),
    "double": (DataTypes.double, 0.1),
    "string": (DataTypes.string, "Grüße"),
    "bytes": (DataTypes.bytes, b"\x00\xff"),
    "date": (DataTypes.date, MOMENT.date()),
    "time": (DataTypes.time, datetime.time(23, 59, 59)),
    "timestamp": (DataTypes.timestamp, MOMENT),
    "timestamp_ltz": (DataTypes.timestamp_ltz, MOMENT.replace(tzinfo=datetime.UTC)),
    "decimal": (lambda: DataTypes.decimal(10, 2), decimal.Decimal("-12345678.90")),
    "char": (lambda: DataTypes.char(4), "four"),
    "binary": (lambda: DataTypes.binary(3), b"\x01\x02\x03"),
    "array": (lambda: DataTypes.array(DataTypes.int()), [1, None, 3]),
    "map": (lambda: DataTypes.map(DataTypes.string(), DataTypes.bigint()), [("a", 1), ("b", None)]),
    "row": (lambda: DataTypes.row([fluss.DataField("x", DataTypes.int(), None)]), {"x": 1}),
}


def test_every_block_of_the_guide_is_known() -> None:
    assert [block.heading for block in python_blocks(document("003"))] == GUIDE_BLOCKS


def test_every_name_about_keys_in_the_rust_reference_has_its_python_form() -> None:
    """Signatures of the Rust reference, and what is tried below or in the tests of the guide in their place."""
    text = document("004")
    forms: dict[str, Any] = {
        "new_lookup": fluss.FlussTable.new_lookup,
        "new_upsert": fluss.FlussTable.new_upsert,
        "has_primary_key": fluss.FlussTable.has_primary_key,
        "partial_update": fluss.TableUpsert.partial_update_by_index,
        "partial_update_with_column_names": fluss.TableUpsert.partial_update_by_name,
        "upsert": fluss.UpsertWriter.upsert,
        "delete": fluss.UpsertWriter.delete,
        "create_lookuper": fluss.TableLookup.create_lookuper,
        "lookup": fluss.Lookuper.lookup,
        "get_single_row": fluss.Lookuper.lookup,
        "get_rows": fluss.PrefixLookuper.lookup,
        "primary_key": fluss.Schema.builder().primary_key,
        "primary_key_indexes": fluss.Schema.primary_key_indexes,
        "kv_format": fluss.TableDescriptor.builder().kv_format,
    }
    for name in forms:
        assert re.search(rf"fn {name}\(", text), name


def create(reader: Reader) -> Any:
    """A table made with the builders of the Rust reference."""
    schema = (
        fluss.Schema.builder()
        .column("id", DataTypes.int())
        .column("name", DataTypes.string())
        .column("age", DataTypes.bigint())
        .primary_key(["id"])
        .build()
    )
    assert (schema.primary_key, schema.primary_key_indexes) == (["id"], [0])
    assert [column.name for column in schema.columns] == schema.column_names == ["id", "name", "age"]
    descriptor = (
        fluss.TableDescriptor.builder()
        .schema(schema)
        .log_format("ARROW")
        .kv_format("COMPACTED")
        .distributed_by(1, ["id"])
        .comment("people")
        .build()
    )
    assert descriptor.has_primary_key()
    reader.drop(PATH)
    reader.wait(reader.names["admin"].create_table(PATH, descriptor))
    return reader.wait(reader.names["conn"].get_table(PATH))


def run(reader: Reader, body: Callable[[], Awaitable[None]]) -> None:
    reader.wait(body())


def test_table_info(reader: Reader) -> None:
    table = create(reader)
    info = reader.wait(reader.names["admin"].get_table_info(PATH))
    assert (info.primary_keys, info.get_primary_keys(), info.has_primary_key()) == (["id"], ["id"], True)
    assert (info.schema_id, info.num_buckets, info.bucket_keys, info.comment) == (1, 1, ["id"], "people")
    assert info.schema.get_columns() == [("id", "int NOT NULL"), ("name", "string"), ("age", "bigint")]
    assert table.has_primary_key()
    assert table.table_path == PATH


def test_upserts_deletes_lookups_and_their_changes(reader: Reader) -> None:
    table = create(reader)

    async def body() -> None:
        writer = table.new_upsert().create_writer()
        writer.upsert({"id": 1, "name": "Alice", "age": 25})
        await writer.flush()
        await writer.upsert([1, "Alice", 26]).wait()
        by_name = table.new_upsert().partial_update_by_name(["id", "age"]).create_writer()
        await by_name.upsert({"id": 1, "age": 27}).wait()
        by_index = table.new_upsert().partial_update_by_index([0, 1]).create_writer()
        await by_index.upsert([1, "Alicia"]).wait()
        lookuper = table.new_lookup().create_lookuper()
        assert await lookuper.lookup({"id": 1}) == {"id": 1, "name": "Alicia", "age": 27}
        await writer.delete({"id": 1}).wait()
        assert await lookuper.lookup({"id": 1}) is None

    run(reader, body)
    scanner = reader.wait(table.new_scan().create_log_scanner())
    scanner.subscribe(0, fluss.EARLIEST_OFFSET)
    seen: list[Any] = []
    while len(seen) < 8:
        records = scanner.poll(5000)
        bucket = TableBucket(table.get_table_info().table_id, 0)
        assert records.is_empty() or (records.buckets() == [bucket] and records.records(bucket) == list(records))
        seen += records
    assert [record.change_type for record in seen] == [
        ChangeType.Insert, *[ChangeType.UpdateBefore, ChangeType.UpdateAfter] * 3, ChangeType.Delete
    ]  # fmt: skip
    assert [record.change_type.short_string() for record in seen] == ["+I", *["-U", "+U"] * 3, "-D"]
    assert [record.offset for record in seen] == list(range(8))
    assert seen[0].row == {"id": 1, "name": "Alice", "age": 25}
    assert seen[7].row == {"id": 1, "name": "Alicia", "age": 27}
    assert all(record.timestamp > 0 for record in seen)


def test_changes_are_not_read_as_batches(reader: Reader) -> None:
    """The batch scanner of the references has no change types, so it would mix rows before and after a change."""
    with pytest.raises(fluss.FlussError, match="create_log_scanner"):
        reader.wait(create(reader).new_scan().create_record_batch_log_scanner())


def test_every_data_type_of_the_rust_reference(reader: Reader) -> None:
    names = re.findall(r"^DataTypes::(\w+)\(", document("004"), re.MULTILINE)
    assert names == list(TYPES)
    path = TablePath("fluss", "reference_types")
    reader.drop(path)
    builder = fluss.Schema.builder().column("key", DataTypes.int())
    for name, (data_type, _) in TYPES.items():
        builder = builder.column(name, data_type())
    descriptor = fluss.TableDescriptor(builder.primary_key(["key"]).build(), bucket_count=1)
    row = {"key": 1, **{name: value for name, (_, value) in TYPES.items()}}
    nothing = {"key": 2, **dict.fromkeys(TYPES)}

    async def body() -> None:
        await reader.names["admin"].create_table(path, descriptor)
        table = await reader.names["conn"].get_table(path)
        writer = table.new_upsert().create_writer()
        writer.upsert(row)
        writer.upsert({"key": 2})
        await writer.flush()
        lookuper = table.new_lookup().create_lookuper()
        assert await asyncio.gather(*[lookuper.lookup([key]) for key in (1, 2)]) == [row, nothing]

    run(reader, body)


def test_builders_for_keys_refuse_log_tables(reader: Reader) -> None:
    path = TablePath("fluss", "reference_log")
    reader.drop(path)
    schema = fluss.Schema(pa.schema([("id", pa.int32())]))
    reader.wait(reader.names["admin"].create_table(path, fluss.TableDescriptor(schema)))
    table = reader.wait(reader.names["conn"].get_table(path))
    assert not table.has_primary_key()
    for build in (table.new_upsert, table.new_lookup):
        with pytest.raises(fluss.FlussError, match="primary"):
            build()
    with pytest.raises(fluss.FlussError, match="new_upsert"):
        create(reader).new_append()
