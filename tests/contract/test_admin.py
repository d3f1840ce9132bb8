"""Databases, tables, partitions and offsets: the same calls, answers and codes on every server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss import ErrorCode, FlussAdmin, FlussConnection, FlussError, OffsetSpec, OffsetType, TablePath
from tests.support.servers.targets import Target
from tools.waiting import eventually

SCHEMA = fluss.Schema(pa.schema([("id", pa.int32()), ("region", pa.string()), ("value", pa.int64())]))


def code_of(coroutine: Coroutine[Any, Any, object]) -> int:
    with pytest.raises(FlussError) as caught:
        asyncio.run(coroutine)
    return caught.value.error_code


@pytest.fixture
def admin(connection: FlussConnection) -> FlussAdmin:
    return connection.get_admin()


def test_a_database_lives_from_create_to_drop(admin: FlussAdmin, table_name: str) -> None:
    async def body() -> None:
        descriptor = fluss.DatabaseDescriptor("orders of the shop", {"team": "blue"})
        assert not await admin.database_exists(table_name)
        await admin.create_database(table_name, descriptor)
        await admin.create_database(table_name, ignore_if_exists=True)
        assert await admin.database_exists(table_name)
        assert table_name in await admin.list_databases()
        info = await admin.get_database_info(table_name)
        assert info.database_name == table_name
        assert info.get_database_descriptor() == descriptor
        assert info.modified_time >= info.created_time > 1_600_000_000_000
        await admin.create_table(TablePath(table_name, "t"), fluss.TableDescriptor(SCHEMA))
        with pytest.raises(FlussError) as caught:
            await admin.drop_database(table_name, cascade=False)
        assert caught.value.error_code == ErrorCode.DATABASE_NOT_EMPTY
        await admin.drop_database(table_name)
        assert not await admin.database_exists(table_name)
        await admin.drop_database(table_name, ignore_if_not_exists=True)

    asyncio.run(body())


def test_errors_of_databases(admin: FlussAdmin, table_name: str) -> None:
    assert code_of(admin.create_database("fluss")) == ErrorCode.DATABASE_ALREADY_EXIST
    assert code_of(admin.create_database("not a name")) == ErrorCode.INVALID_DATABASE_EXCEPTION
    assert code_of(admin.drop_database(table_name)) == ErrorCode.DATABASE_NOT_EXIST
    assert code_of(admin.get_database_info(table_name)) == ErrorCode.DATABASE_NOT_EXIST
    assert code_of(admin.list_tables(table_name)) == ErrorCode.DATABASE_NOT_EXIST


def test_a_table_lives_from_create_to_drop(admin: FlussAdmin, connection: FlussConnection, table_name: str) -> None:
    async def body() -> None:
        path = TablePath("fluss", table_name)
        descriptor = fluss.TableDescriptor(
            SCHEMA,
            bucket_count=3,
            bucket_keys=["id"],
            comment="rows of a test",
            log_format="ARROW",
            properties={"table.log.ttl": "3d"},
            custom_properties={"owner": "tests"},
        )
        assert not await admin.table_exists(path)
        await admin.create_table(path, descriptor)
        await admin.create_table(path, descriptor, ignore_if_exists=True)
        assert await admin.table_exists(path)
        assert table_name in await admin.list_tables("fluss")
        info = await admin.get_table_info(path)
        assert info.table_path == path
        assert (info.num_buckets, info.schema_id, info.comment) == (3, 1, "rows of a test")
        assert info.get_bucket_keys() == ["id"]
        assert info.get_primary_keys() == info.get_partition_keys() == []
        assert not info.has_primary_key()
        assert not info.is_partitioned()
        assert info.get_schema().get_columns() == [("id", "int"), ("region", "string"), ("value", "bigint")]
        assert info.get_properties()["table.log.ttl"] == "3d"
        assert info.get_properties()["table.log.format"] == "ARROW"
        assert info.get_custom_properties() == {"owner": "tests"}
        assert info == await admin.get_table(path)
        await admin.drop_table(path)
        assert not await admin.table_exists(path)
        await admin.drop_table(path, ignore_if_not_exists=True)

    asyncio.run(body())


def test_errors_of_tables(admin: FlussAdmin, connection: FlussConnection, table_name: str) -> None:
    path, missing = TablePath("fluss", table_name), TablePath("fluss", table_name + "_missing")
    descriptor = fluss.TableDescriptor(SCHEMA)
    asyncio.run(admin.create_table(path, descriptor))
    assert code_of(admin.create_table(path, descriptor)) == ErrorCode.TABLE_ALREADY_EXIST
    assert code_of(admin.create_table(TablePath(table_name, "t"), descriptor)) == ErrorCode.DATABASE_NOT_EXIST
    assert code_of(admin.create_table(TablePath("fluss", "a b"), descriptor)) == ErrorCode.INVALID_TABLE_EXCEPTION
    assert code_of(admin.drop_table(missing)) == ErrorCode.TABLE_NOT_EXIST
    assert code_of(admin.get_table_info(missing)) == ErrorCode.TABLE_NOT_EXIST
    assert code_of(connection.get_table(missing)) == ErrorCode.TABLE_NOT_EXIST
    for keys in ({"bucket_keys": ["nope"]}, {"partition_keys": ["nope"]}):
        bad = fluss.TableDescriptor(SCHEMA, **keys)  # type: ignore[arg-type]
        assert code_of(admin.create_table(missing, bad)) == ErrorCode.INVALID_TABLE_EXCEPTION
    for properties, buckets, code in (
        ({"table.log.ttl": "soon"}, 1, ErrorCode.INVALID_CONFIG_EXCEPTION),
        ({"table.nonsense": "1"}, 1, ErrorCode.INVALID_CONFIG_EXCEPTION),
        ({"table.replication.factor": "3"}, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({}, 2_000_000, ErrorCode.BUCKET_MAX_NUM_EXCEPTION),
    ):
        bad = fluss.TableDescriptor(SCHEMA, properties=properties, bucket_count=buckets)
        assert code_of(admin.create_table(missing, bad)) == code


def test_columns_and_properties_can_be_changed(admin: FlussAdmin, target: Target, table_name: str) -> None:
    async def body() -> None:
        path = TablePath("fluss", table_name)
        await admin.create_table(path, fluss.TableDescriptor(SCHEMA))
        await admin.alter_table(path, add_columns={"note": fluss.DataTypes.string()})
        info = await admin.get_table_info(path)
        assert info.get_column_names() == ["id", "region", "value", "note"]
        assert info.schema_id == 2
        old = await admin.get_table_schema(path, 1)
        assert (old.schema_id, old.schema.get_column_names()) == (1, ["id", "region", "value"])
        assert (await admin.get_table_schema(path)).schema_id == 2
        with pytest.raises(FlussError) as caught:
            await admin.get_table_schema(path, 77)
        assert caught.value.error_code == ErrorCode.SCHEMA_NOT_EXIST
        await admin.alter_table(path, set_properties={"owner": "tests"})
        assert (await admin.get_table_info(path)).get_custom_properties() == {"owner": "tests"}
        await admin.alter_table(path, remove_properties=["owner"])
        assert (await admin.get_table_info(path)).get_custom_properties() == {}
        with pytest.raises(FlussError) as caught:
            await admin.alter_table(path, add_columns=[pa.field("x", pa.int8())], set_properties={"a": "b"})
        assert caught.value.error_code == ErrorCode.INVALID_ALTER_TABLE_EXCEPTION

    asyncio.run(body())


def test_changes_that_are_refused(admin: FlussAdmin, table_name: str) -> None:
    path, missing = TablePath("fluss", table_name), TablePath("fluss", table_name + "_missing")
    asyncio.run(admin.create_table(path, fluss.TableDescriptor(SCHEMA)))
    refused = ErrorCode.INVALID_ALTER_TABLE_EXCEPTION
    assert code_of(admin.alter_table(path, add_columns={"id": pa.int32()})) == refused
    assert code_of(admin.alter_table(path, set_properties={"table.log.format": "INDEXED"})) == refused
    assert code_of(admin.alter_table(missing, add_columns={"x": pa.int32()})) == ErrorCode.TABLE_NOT_EXIST
    asyncio.run(admin.alter_table(missing, add_columns={"x": pa.int32()}, ignore_if_not_exists=True))
    assert asyncio.run(admin.get_table_info(path)).schema_id == 1


def test_where_the_servers_differ(admin: FlussAdmin, target: Target, table_name: str) -> None:
    """The same list is in docs/client.md."""
    path = TablePath("fluss", table_name)
    asyncio.run(admin.create_table(path, fluss.TableDescriptor(SCHEMA)))
    time_to_live = admin.alter_table(path, set_properties={"table.log.ttl": "2d"})
    comment = admin.alter_database("fluss", comment="the first database")
    unknown = admin.alter_cluster_configs({"nonsense": "1"})
    if target.is_apache:
        assert code_of(time_to_live) == ErrorCode.INVALID_ALTER_TABLE_EXCEPTION
        assert code_of(comment) == ErrorCode.UNSUPPORTED_VERSION
        assert code_of(unknown) == ErrorCode.UNKNOWN_SERVER_ERROR
    else:
        asyncio.run(time_to_live)
        assert asyncio.run(admin.get_table_info(path)).get_properties()["table.log.ttl"] == "2d"
        asyncio.run(comment)
        assert asyncio.run(admin.get_database_info("fluss")).get_database_descriptor().comment == "the first database"
        assert code_of(unknown) == ErrorCode.CONFIG_EXCEPTION


def test_partitions(admin: FlussAdmin, table_name: str) -> None:
    async def body() -> None:
        path = TablePath("fluss", table_name)
        columns = pa.schema([("id", pa.int32()), ("day", pa.string()), ("region", pa.string())])
        descriptor = fluss.TableDescriptor(fluss.Schema(columns), partition_keys=["day", "region"], bucket_count=2)
        await admin.create_table(path, descriptor)
        assert await admin.list_partition_infos(path) == []
        for day, region in (("2024", "EU"), ("2024", "US"), ("2025", "EU")):
            await admin.create_partition(path, {"day": day, "region": region})
        await admin.create_partition(path, {"day": "2025", "region": "EU"}, ignore_if_exists=True)
        infos = await admin.list_partition_infos(path)
        assert sorted(info.partition_name for info in infos) == ["2024$EU", "2024$US", "2025$EU"]
        assert len({info.partition_id for info in infos}) == 3
        matching = await admin.list_partition_infos(path, {"day": "2024"})
        assert sorted(info.partition_name for info in matching) == ["2024$EU", "2024$US"]
        assert matching[0].partition_spec["day"] == "2024"
        await admin.drop_partition(path, {"day": "2025", "region": "EU"})
        assert len(await admin.list_partition_infos(path)) == 2
        await admin.drop_partition(path, {"day": "2025", "region": "EU"}, ignore_if_not_exists=True)

    asyncio.run(body())


def test_errors_of_partitions(admin: FlussAdmin, table_name: str) -> None:
    path, plain = TablePath("fluss", table_name), TablePath("fluss", table_name + "_plain")
    asyncio.run(admin.create_table(path, fluss.TableDescriptor(SCHEMA, partition_keys=["region"])))
    asyncio.run(admin.create_table(plain, fluss.TableDescriptor(SCHEMA)))
    asyncio.run(admin.create_partition(path, {"region": "US"}))
    assert code_of(admin.create_partition(path, {"region": "US"})) == ErrorCode.PARTITION_ALREADY_EXISTS
    assert code_of(admin.create_partition(path, {"color": "red"})) == ErrorCode.PARTITION_SPEC_INVALID_EXCEPTION
    assert code_of(admin.drop_partition(path, {"region": "EU"})) == ErrorCode.PARTITION_NOT_EXISTS
    assert code_of(admin.list_partition_infos(plain)) == ErrorCode.TABLE_NOT_PARTITIONED_EXCEPTION
    offsets = admin.list_partition_offsets(path, "EU", [0], OffsetSpec.latest())
    assert code_of(offsets) == ErrorCode.PARTITION_NOT_EXISTS
    offsets = admin.list_partition_offsets(plain, "EU", [0], OffsetSpec.latest())
    assert code_of(offsets) == ErrorCode.TABLE_NOT_PARTITIONED_EXCEPTION


def test_offsets_of_empty_tables_in_all_spellings(admin: FlussAdmin, table_name: str) -> None:
    async def body() -> None:
        path, partitioned = TablePath("fluss", table_name), TablePath("fluss", table_name + "_parts")
        await admin.create_table(path, fluss.TableDescriptor(SCHEMA, bucket_count=3))
        await admin.create_table(partitioned, fluss.TableDescriptor(SCHEMA, partition_keys=["region"], bucket_count=2))
        await admin.create_partition(partitioned, {"region": "US"})
        zeros = {0: 0, 2: 0}
        assert await admin.list_offsets(path, [0, 2], OffsetSpec.earliest()) == zeros
        assert await admin.list_offsets(path, [0, 2], OffsetSpec.latest()) == zeros
        assert await admin.list_offsets(path, [0, 2], OffsetType.LATEST) == zeros
        assert await admin.list_offsets(path, bucket_ids=[0, 2], offset_type="latest") == zeros
        assert await admin.list_offsets(path, bucket_ids=[0, 2], offset_spec=None, offset_type="earliest") == zeros
        assert await admin.list_offsets(path, [0], offset_type="timestamp", timestamp=1704067200000) == {0: 0}
        assert await admin.list_offsets(path, [0], OffsetSpec.timestamp(1704067200000)) == {0: 0}
        assert await admin.list_partition_offsets(partitioned, "US", [0, 1], OffsetSpec.latest()) == {0: 0, 1: 0}
        offsets = await admin.list_partition_offsets(
            partitioned, partition_name="US", bucket_ids=[0], offset_type="latest"
        )
        assert offsets == {0: 0}

    asyncio.run(body())


def test_errors_of_offsets(admin: FlussAdmin, table_name: str) -> None:
    path = TablePath("fluss", table_name)
    asyncio.run(admin.create_table(path, fluss.TableDescriptor(SCHEMA, bucket_count=1)))
    assert code_of(admin.list_offsets(path, [5], OffsetSpec.latest())) == ErrorCode.CLIENT_ERROR
    assert code_of(admin.list_offsets(path, [], OffsetSpec.latest())) == ErrorCode.CLIENT_ERROR
    future = admin.list_offsets(path, [0], OffsetSpec.timestamp(2**52))
    assert code_of(future) == ErrorCode.INVALID_TIMESTAMP_EXCEPTION
    missing = admin.list_offsets(TablePath("fluss", table_name + "_missing"), [0], OffsetSpec.latest())
    assert code_of(missing) == ErrorCode.TABLE_NOT_EXIST


def test_servers_options_and_lake(admin: FlussAdmin, target: Target, table_name: str) -> None:
    async def body() -> None:
        nodes = await admin.get_server_nodes()
        assert [node.server_type for node in nodes] == ["CoordinatorServer"] + ["TabletServer"] * target.tablet_count
        assert nodes[0].uid.startswith("cs-")
        assert nodes[1].uid == f"ts-{nodes[1].id}"
        assert f"{nodes[0].host}:{nodes[0].port}" == target.bootstrap_servers
        path = TablePath("fluss", table_name)
        await admin.create_table(path, fluss.TableDescriptor(SCHEMA))
        with pytest.raises(FlussError) as caught:
            await admin.get_latest_lake_snapshot(path)
        assert caught.value.error_code == ErrorCode.LAKE_SNAPSHOT_NOT_EXIST
        assert all(isinstance(entry, fluss.ConfigEntry) for entry in await admin.describe_cluster_configs())

    asyncio.run(body())


def test_an_option_of_the_cluster_can_be_changed_while_it_runs(admin: FlussAdmin) -> None:
    async def values(name: str) -> list[str | None]:
        return [entry.value for entry in await admin.describe_cluster_configs() if entry.name == name]

    async def body() -> None:
        name = "kv.rocksdb.shared-rate-limiter.bytes-per-sec"
        await admin.alter_cluster_configs({name: "64mb"})

        async def is_set() -> bool:
            return await values(name) == ["64mb"]

        await eventually(is_set, "the option is set")
        await admin.alter_cluster_configs(remove_values=[name])

        async def is_gone() -> bool:
            return await values(name) != ["64mb"]

        await eventually(is_gone, "the option is gone")

    asyncio.run(body())


def test_calls_overlap(admin: FlussAdmin) -> None:
    async def body() -> None:
        answers = await asyncio.gather(*(admin.list_databases() for _ in range(50)))
        assert all("fluss" in answer for answer in answers)

    asyncio.run(body())
