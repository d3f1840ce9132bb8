"""The Rust reference (document 004): every method of it has a Python form, and those of log tables are walked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa

import fluss
from fluss import DataTypes, TablePath
from tests.docs.documents import Reader, document
from tools.waiting import patience

PATH = TablePath("fluss", "rust_reference_events")
WAIT_MS = int(patience(60_000))

# Where the methods of a heading are in Python. The other headings list what Python has of its own: rows are dicts and
# tuples (GenericRow, InternalRow), changes an enumeration.
OWNERS: dict[str, Any] = {
    "FlussConnection": fluss.FlussConnection,
    "Database Operations": fluss.FlussAdmin,
    "Table Operations": fluss.FlussAdmin,
    "Partition Operations": fluss.FlussAdmin,
    "Offset Operations": fluss.FlussAdmin,
    "Lake Operations": fluss.FlussAdmin,
    "Cluster Operations": fluss.FlussAdmin,
    "ServerNode": fluss.ServerNode,
    "FlussTable<'a>": fluss.FlussTable,
    "TableAppend": fluss.TableAppend,
    "AppendWriter": fluss.AppendWriter,
    "TableScan<'a>": fluss.TableScan,
    "LogScanner": fluss.LogScanner,
    "RecordBatchLogScanner": fluss.LogScanner,
    "ScanRecord": fluss.ScanRecord,
    "ScanRecords": fluss.ScanRecords,
    "ScanBatch": fluss.RecordBatch,
    "TableUpsert": fluss.TableUpsert,
    "UpsertWriter": fluss.UpsertWriter,
    "TableLookup": fluss.TableLookup,
    "Lookuper": fluss.Lookuper,
    "Schema": fluss.Schema,
    "SchemaBuilder": type(fluss.Schema.builder()),
    "TableDescriptor": fluss.TableDescriptor,
    "TableDescriptorBuilder": type(fluss.TableDescriptor.builder()),
    "TablePath": fluss.TablePath,
    "TableBucket": fluss.TableBucket,
    "PartitionSpec": fluss.PartitionSpec,
    "PartitionInfo": fluss.PartitionInfo,
    "DatabaseDescriptor": fluss.DatabaseDescriptor,
    "DatabaseDescriptorBuilder": type(fluss.DatabaseDescriptor.builder()),
    "DatabaseInfo": fluss.DatabaseInfo,
    "DataField": fluss.DataField,
    "LookupResult": fluss.Lookuper,
}
NOT_CLASSES = {"GenericRow<'a>", "InternalRow trait", "ChangeType", "DataTypes factory"}

# Rust name -> Python form, where it is not the same name on the same class.
FORMS: dict[str, str] = {
    "FlussConnection.new": "FlussConnection.create",
    "Partition Operations.list_partition_infos_with_spec": "FlussAdmin.list_partition_infos",
    "AppendWriter.append_arrow_batch": "AppendWriter.write_arrow_batch",
    "RecordBatchLogScanner.poll": "LogScanner.poll_record_batch",
    "TableUpsert.partial_update": "TableUpsert.partial_update_by_index",
    "TableUpsert.partial_update_with_column_names": "TableUpsert.partial_update_by_name",
    "LookupResult.get_single_row": "Lookuper.lookup",
    "LookupResult.get_rows": "PrefixLookuper.lookup",
    "TablePath.database": "TablePath.database_name",
    "TablePath.table": "TablePath.table_name",
    "PartitionInfo.get_partition_id": "PartitionInfo.partition_id",
    "PartitionInfo.get_partition_name": "PartitionInfo.partition_name",
}


def rust_methods() -> Iterator[tuple[str, str]]:
    """Heading and name of every method."""
    lines = [line for line in document("004").splitlines() if line.strip()]
    heading = ""
    for before, line in pairwise(lines):
        if line.endswith("Description") and "fn " not in line and not before.startswith("ChangeType::"):
            heading = before
        elif before.startswith("ChangeType::"):
            heading = "ChangeType"
        found = re.match(r"(?:async )?fn (\w+)", line)
        if found:
            yield heading, found[1]


def test_every_method_has_its_python_form() -> None:
    missing = []
    seen = set()
    for heading, name in rust_methods():
        seen.add(heading)
        if heading in NOT_CLASSES:
            continue
        owner_name, _, form = FORMS.get(f"{heading}.{name}", f".{name}").rpartition(".")
        owner = getattr(fluss, owner_name) if owner_name else OWNERS[heading]
        if not hasattr(owner, form) and form not in getattr(owner, "__dataclass_fields__", ()):
            missing.append(f"{heading}.{name}")
    assert missing == []
    assert seen - NOT_CLASSES == set(OWNERS)


def test_a_log_table_is_walked(reader: Reader) -> None:
    """Builders, writing, both scanners, their subscriptions and what polls return, by the names of the reference."""
    schema = fluss.Schema.builder().column("id", DataTypes.int()).column("region", DataTypes.string()).build()
    descriptor = fluss.TableDescriptor.builder().schema(schema).distributed_by(2, []).partitioned_by(["region"]).build()
    admin, connection = reader.names["admin"], reader.names["conn"]
    reader.drop(PATH)
    reader.wait(admin.create_table(PATH, descriptor))
    reader.wait(admin.create_partition(PATH, {"region": "US"}))
    (info,) = reader.wait(admin.list_partition_infos(PATH, {"region": "US"}))
    table = reader.wait(connection.get_table(PATH))

    async def write() -> None:
        writer = table.new_append().create_writer()
        for number in range(6):
            await writer.append({"id": number, "region": "US"}).wait()
        await writer.write_arrow_batch(pa.record_batch({"id": pa.array([6], pa.int32()), "region": ["US"]})).wait()
        await writer.flush()

    reader.wait(write())
    places = {(info.partition_id, bucket): fluss.EARLIEST_OFFSET for bucket in range(2)}
    scanner = reader.wait(table.new_scan().project_by_name(["id"]).create_log_scanner())
    scanner.subscribe_partition_buckets(places)
    found: list[int] = []
    while len(found) < 7:
        records = scanner.poll(WAIT_MS)
        assert not records.is_empty()
        assert records.count() == sum(len(records.records(bucket)) for bucket in records.records_by_buckets())
        found += [record.row["id"] for record in records]
    assert sorted(found) == list(range(7))
    batches = reader.wait(table.new_scan().project([0]).create_record_batch_log_scanner())
    assert batches.is_partitioned()
    batches.subscribe_partition(info.partition_id, 0, fluss.EARLIEST_OFFSET)
    batches.subscribe_partition(info.partition_id, 1, fluss.EARLIEST_OFFSET)
    count = 0
    while count < 7:
        for batch in batches.poll_record_batch(WAIT_MS):
            assert batch.num_records == batch.batch.num_rows == batch.last_offset - batch.base_offset + 1
            assert batch.bucket.partition_id == info.partition_id
            count += batch.num_records
    assert len(batches.get_subscribed_buckets()) == 2
    batches.unsubscribe_partition(info.partition_id, 1)
    assert [bucket.bucket_id for bucket, _ in batches.get_subscribed_buckets()] == [0]
    scanner.close()
    batches.close()
    reader.drop(PATH)
