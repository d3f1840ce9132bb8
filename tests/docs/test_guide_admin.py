"""The connection, admin, offset, partition and error blocks of the guide (document 003), as written."""

from __future__ import annotations

import pyarrow as pa
import pytest

import fluss
from fluss import TablePath
from tests.docs.documents import Block, Reader, document, python_blocks


@pytest.fixture
def blocks() -> dict[str, list[Block]]:
    """Blocks by heading."""
    found: dict[str, list[Block]] = {}
    for block in python_blocks(document("003")):
        found.setdefault(block.heading, []).append(block)
    return found


def test_connection_setup(reader: Reader, blocks: dict[str, list[Block]]) -> None:
    plain, managed = blocks["Connection Setup"]
    reader.names["conn"].close()
    reader.run(plain)
    connection = reader.names["conn"]
    assert isinstance(connection, fluss.FlussConnection)
    assert not connection.is_closed
    reader.run(managed)
    assert reader.names["conn"] is not connection
    assert reader.names["conn"].is_closed
    connection.close()


def test_admin_and_databases(reader: Reader, blocks: dict[str, list[Block]]) -> None:
    del reader.names["admin"]
    (admin,) = blocks["Admin Operations"]
    reader.run(admin)
    assert isinstance(reader.names["admin"], fluss.FlussAdmin)
    (databases,) = blocks["Databases"]
    reader.run(databases)
    assert {"fluss", "my_database"} <= set(reader.names["databases"])
    assert reader.names["exists"] is True
    assert reader.wait(reader.names["admin"].database_exists("my_database")) is False


def test_tables(reader: Reader, blocks: dict[str, list[Block]]) -> None:
    admin = reader.names["admin"]
    reader.wait(admin.create_database("my_database", ignore_if_exists=True))
    (tables,) = blocks["Tables"]
    reader.run(tables)
    info = reader.names["table_info"]
    assert info.table_path == TablePath("my_database", "my_table")
    assert info.get_schema().get_columns() == [("id", "int"), ("name", "string"), ("amount", "bigint")]
    assert "my_table" in reader.names["tables"]
    assert not reader.wait(admin.table_exists(reader.names["table_path"]))
    reader.wait(admin.drop_database("my_database"))


def test_descriptor_parameters(reader: Reader) -> None:
    """The table of optional parameters under "Tables", each with its example."""
    for name in (
        "partition_keys", "bucket_count", "bucket_keys", "comment", "log_format", "kv_format", "properties",
        "custom_properties",
    ):  # fmt: skip
        assert f"| `{name}` |" in document("003")
    schema = fluss.Schema(pa.schema([("id", pa.int32()), ("region", pa.string())]))
    path = TablePath("fluss", "guide_descriptor")
    reader.drop(path)
    for log_format in ("ARROW", "INDEXED"):
        descriptor = fluss.TableDescriptor(
            schema,
            partition_keys=["region"],
            bucket_count=2,
            bucket_keys=["id"],
            comment="described",
            log_format=log_format,
            kv_format="COMPACTED",
            properties={"table.replication.factor": "1"},
            custom_properties={"mine": "yes"},
        )
        reader.wait(reader.names["admin"].create_table(path, descriptor))
        info = reader.wait(reader.names["admin"].get_table(path))
        assert (info.get_partition_keys(), info.num_buckets, info.get_bucket_keys()) == (["region"], 2, ["id"])
        assert (info.comment, info.get_custom_properties()) == ("described", {"mine": "yes"})
        assert info.get_properties()["table.log.format"] == log_format
        reader.drop(path)


def test_offsets(reader: Reader, blocks: dict[str, list[Block]]) -> None:
    admin, path = reader.names["admin"], TablePath("fluss", "guide_offsets")
    partitioned = TablePath("fluss", "guide_partition_offsets")
    reader.drop(path, partitioned)
    schema = fluss.Schema(pa.schema([("id", pa.int32()), ("region", pa.string())]))
    reader.wait(admin.create_table(path, fluss.TableDescriptor(schema, bucket_count=2)))
    reader.wait(admin.create_table(partitioned, fluss.TableDescriptor(schema, partition_keys=["region"])))
    reader.wait(admin.create_partition(partitioned, {"region": "US"}))
    (block,) = blocks["Offsets"]
    latest, by_time, by_partition = block.code.split("\n\n")
    reader.names["table_path"] = path
    reader.run(Block("latest", latest))
    assert reader.names["offsets"] == {0: 0, 1: 0}
    reader.run(Block("by timestamp", by_time))
    assert reader.names["offsets"] == {0: 0}
    reader.names["table_path"] = partitioned
    reader.run(Block("per partition", by_partition))
    assert reader.names["offsets"] == {0: 0}


def test_creating_and_managing_partitions(reader: Reader, blocks: dict[str, list[Block]]) -> None:
    reader.drop(TablePath("fluss", "partitioned_events"))
    (block,) = blocks["Creating and Managing Partitions"]
    reader.run(block)
    infos = reader.names["partition_infos"]
    assert sorted(info.partition_name for info in infos) == ["EU", "US"]
    reader.run(block)  # once more: everything exists, and that is ignored
    assert reader.names["partition_infos"] == infos
    # Other tests create this table again, and Apache Fluss answers with the old partitions for a moment after a drop.
    reader.drop(TablePath("fluss", "partitioned_events"))


def test_error_handling(reader: Reader, blocks: dict[str, list[Block]], capsys: pytest.CaptureFixture[str]) -> None:
    path = TablePath("fluss", "guide_errors")
    reader.drop(path)
    descriptor = fluss.TableDescriptor(fluss.Schema(pa.schema([("id", pa.int32())])))
    reader.names.update(table_path=path, table_descriptor=descriptor)
    (block,) = blocks["Error Handling"]
    reader.run(block)
    assert capsys.readouterr().out == ""
    reader.run(block)
    assert capsys.readouterr().out.startswith("Fluss error: ")
    with pytest.raises(fluss.FlussError) as caught:
        reader.wait(fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": "127.0.0.1:1"})))
    assert caught.value.error_code == fluss.ErrorCode.NETWORK_EXCEPTION
    with pytest.raises(fluss.FlussError) as caught:
        reader.wait(reader.names["conn"].get_table(TablePath("fluss", "no_such_table")))
    assert caught.value.error_code == fluss.ErrorCode.TABLE_NOT_EXIST
