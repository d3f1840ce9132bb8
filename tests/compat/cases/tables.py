"""Tables: creation, what comes back from the server, and each error code."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from tests.compat.cases.kit import Context, case, fluss, raises

TWO_COLUMNS = pa.schema([("id", pa.int32()), ("name", pa.string())])


def descriptor(schema: pa.Schema = TWO_COLUMNS, **options: Any) -> Any:
    """A table descriptor of these columns."""
    return fluss.TableDescriptor(fluss.Schema(schema), **options)


@case(peer=True)
async def table_info_round_trip(context: Context) -> None:
    """Everything that was said at creation comes back, and nothing else is made up."""
    schema = pa.schema([("z", pa.int64()), ("a", pa.string()), ("m", pa.float64()), ("b", pa.bool_())])
    before = int(time.time() * 1000)
    path = await context.create(
        schema,
        comment="a table",
        bucket_count=3,
        bucket_keys=["a", "z"],
        log_format="arrow",
        properties={"table.log.ttl": "3 d", "table.log.arrow.compression.type": "LZ4_FRAME"},
        custom_properties={"owner": "lab 7", "ключ": "значение"},
    )
    admin = await context.admin()
    info = await admin.get_table_info(path)
    assert info.table_path == path
    assert info.comment == "a table"
    assert info.num_buckets == 3
    assert info.get_bucket_keys() == ["a", "z"]
    assert info.get_partition_keys() == []
    assert info.get_primary_keys() == []
    assert not info.has_primary_key()
    assert not info.is_partitioned()
    assert info.get_column_names() == ["z", "a", "m", "b"]
    assert info.get_column_count() == 4
    assert info.get_properties() == {
        "table.log.ttl": "3 d",
        "table.log.arrow.compression.type": "LZ4_FRAME",
        "table.log.format": "ARROW",
        "table.replication.factor": "1",
    }
    assert info.get_custom_properties() == {"owner": "lab 7", "ключ": "значение"}
    assert info.schema_id == 1
    assert before - 1000 <= info.created_time <= int(time.time() * 1000) + 1000
    assert info.modified_time == info.created_time
    table = await context.table(path)
    assert table.get_table_info().table_id == info.table_id
    assert table.get_table_path() == path
    assert not table.has_primary_key()
    assert table.arrow_schema.names == ["z", "a", "m", "b"]


@case()
async def table_with_nothing_said(context: Context) -> None:
    """One bucket, no bucket key, only the replication factor filled in."""
    path = await context.create(TWO_COLUMNS)
    info = await (await context.admin()).get_table_info(path)
    assert info.num_buckets == 1
    assert info.get_bucket_keys() == []
    assert info.comment is None
    assert info.get_properties() == {"table.replication.factor": "1"}
    assert info.get_custom_properties() == {}


@case()
async def partitioned_table_info(context: Context) -> None:
    """Partition keys keep their order."""
    schema = pa.schema([("id", pa.int32()), ("dt", pa.string()), ("region", pa.string())])
    path = await context.create(schema, partition_keys=["region", "dt"], bucket_count=2, bucket_keys=["id"])
    info = await (await context.admin()).get_table_info(path)
    assert info.is_partitioned()
    assert info.get_partition_keys() == ["region", "dt"]
    assert info.get_bucket_keys() == ["id"]


@case()
async def primary_key_table_metadata(context: Context) -> None:
    """A primary-key table can be made and described: keys become NOT NULL, the defaults are filled in."""
    schema = pa.schema([("region", pa.string()), ("user", pa.int64()), ("score", pa.float64())])
    admin = await context.admin()
    path = context.path("pk")
    made = fluss.Schema(schema, primary_keys=["region", "user"])
    await admin.create_table(path, fluss.TableDescriptor(made, bucket_count=3, bucket_keys=["user"]))
    info = await admin.get_table_info(path)
    assert info.has_primary_key()
    assert info.get_primary_keys() == ["region", "user"]
    assert info.get_bucket_keys() == ["user"]
    assert info.get_schema().get_columns()[:2] == [("region", "string NOT NULL"), ("user", "bigint NOT NULL")]
    properties = info.get_properties()
    assert properties["table.kv.format-version"] == "2"
    assert properties["table.replication.factor"] == "1"


@case()
async def ids_are_never_used_twice(context: Context) -> None:
    """A table made again under the old name is another table."""
    admin = await context.admin()
    seen = []
    for _ in range(3):
        path = await context.create(TWO_COLUMNS)
        seen.append((await admin.get_table_info(path)).table_id)
        await admin.drop_table(path)
    assert seen == sorted(set(seen))


@case()
async def a_table_made_again_is_empty(context: Context) -> None:
    """Rows of the dropped table do not come back."""
    admin = await context.admin()
    path = await context.create(TWO_COLUMNS)
    await context.append(path, [{"id": 1, "name": "old"}])
    await admin.drop_table(path)
    await context.create(TWO_COLUMNS)
    connection = await context.connect()
    writer = (await connection.get_table(path)).new_append().create_writer()
    writer.append({"id": 2, "name": "new"})
    await writer.flush()
    assert await admin.list_offsets(path, [0], fluss.OffsetSpec.latest()) == {0: 1}
    assert await context.read_rows(path, 1) == [{"id": 2, "name": "new"}]


@case()
async def list_and_exists(context: Context) -> None:
    """Tables of one database, and of no other."""
    admin = await context.admin()
    for name in ("one", "two"):
        await context.create(TWO_COLUMNS, name)
    assert sorted(await admin.list_tables(context.database)) == ["one", "two"]
    assert await admin.table_exists(context.path("one"))
    assert not await admin.table_exists(context.path("three"))
    assert not await admin.table_exists(fluss.TablePath("no_such_database", "one"))
    await admin.drop_table(context.path("one"))
    assert await admin.list_tables(context.database) == ["two"]


@case(peer=True)
async def table_exists_already(context: Context) -> None:
    """Code 8, unless ignored; ignoring does not hide a bad descriptor."""
    admin = await context.admin()
    path = await context.create(TWO_COLUMNS)
    await raises(8, admin.create_table(path, descriptor()), f"{context.database}.t")
    await admin.create_table(path, descriptor(), ignore_if_exists=True)
    await raises(49, admin.create_table(path, descriptor(bucket_count=33), ignore_if_exists=True))


@case(peer=True)
async def table_does_not_exist(context: Context) -> None:
    """Code 7, with the path in the text."""
    admin = await context.admin()
    path = context.path("missing")
    shown = f"{context.database}.missing"
    await raises(7, admin.get_table_info(path), shown, "exist")
    await raises(7, admin.drop_table(path), shown, "exist")
    await raises(7, admin.drop_table(fluss.TablePath("no_such_database", "x")), "no_such_database.x")
    await raises(7, admin.list_partition_infos(path), shown)
    await raises(7, admin.create_partition(path, {"dt": "1"}), shown)
    await raises(7, admin.get_latest_lake_snapshot(path), shown)
    await admin.drop_table(path, ignore_if_not_exists=True)
    # Metadata of a missing table: the peer loses the class of its exception on the way; 7 is what it means.
    missing = -1 if context.is_apache else 7
    await raises(missing, (await context.connection()).get_table(path), shown)
    await raises(missing, admin.list_offsets(path, [0], fluss.OffsetSpec.latest()), shown)


@case()
async def database_of_a_table_does_not_exist(context: Context) -> None:
    """Code 4 at creation."""
    admin = await context.admin()
    await raises(4, admin.create_table(fluss.TablePath("no_such_database", "t"), descriptor()), "no_such_database")


@case(peer=True)
async def invalid_tables(context: Context) -> None:
    """Code 15 for names and descriptors that cannot be, 16 when the database's name is the bad one."""
    admin = await context.admin()
    for name in ("bad name", "a.b", "__t", "x" * 201):
        await raises(15, admin.create_table(context.path(name), descriptor()), name[:100])
    await raises(16, admin.create_table(fluss.TablePath("b d", "t"), descriptor()), "b d")
    for reserved in ("__offset", "__timestamp", "__bucket"):
        bad = descriptor(pa.schema([(reserved, pa.int32())]))
        await raises(15, admin.create_table(context.path(), bad), reserved)
    await raises(15, admin.create_table(context.path(), descriptor(bucket_count=2, bucket_keys=["zz"])), "zz")
    await raises(15, admin.create_table(context.path(), descriptor(partition_keys=["zz"])), "zz")
    nested = pa.schema([("id", pa.int32()), ("xs", pa.list_(pa.int32())), ("price", pa.decimal128(5, 2))])
    await raises(15, admin.create_table(context.path(), descriptor(nested, bucket_count=2, bucket_keys=["xs"])), "xs")
    await raises(15, admin.create_table(context.path(), descriptor(nested, partition_keys=["xs"])), "partition")
    await raises(15, admin.create_table(context.path(), descriptor(nested, partition_keys=["price"])), "partition")
    assert await admin.list_tables(context.database) == []


@case(peer=True)
async def invalid_properties(context: Context) -> None:
    """Code 39, with the key in the text."""
    admin = await context.admin()
    bad = {
        "foo": "1",
        "table.foo": "1",
        "table.log.ttl": "abc",
        "table.log.format": "xml",
        "table.auto-partition.enabled": "perhaps",
        "table.log.tiered.local-segments": "0",
        "table.delete.behavior": "ignore",
    }
    for key, value in bad.items():
        await raises(39, admin.create_table(context.path(), descriptor(properties={key: value})), key)
    await raises(39, admin.create_table(context.path(), descriptor(properties={"table.log.ttl": "5"})), "table.log.ttl")
    blanks = {"table.log.format": "ARROW ", "table.auto-partition.enabled": " false"}
    for key, value in blanks.items():
        await raises(39, admin.create_table(context.path(), descriptor(properties={key: value})), key)
    level = {"table.log.arrow.compression.zstd.level": "99"}
    await raises(39, admin.create_table(context.path(), descriptor(properties=level)), "99")
    engine = {"table.merge-engine": "first_row"}
    await raises(39, admin.create_table(context.path(), descriptor(properties=engine)), "primary key")
    automatic = {"table.auto-partition.enabled": "true"}
    await raises(39, admin.create_table(context.path(), descriptor(properties=automatic)), "partition")
    assert await admin.list_tables(context.database) == []


@case()
async def property_values_are_kept_as_written(context: Context) -> None:
    """Case, blanks and units of accepted values stay; no default is written down."""
    properties = {
        "table.log.ttl": "12 Hours",
        "table.log.arrow.compression.type": "zstd",
        "table.log.arrow.compression.zstd.level": "7",
        "table.datalake.format": "iceberg",
        "table.replication.factor": "1",
    }
    path = await context.create(TWO_COLUMNS, properties=properties)
    assert (await (await context.admin()).get_table_info(path)).get_properties() == properties


@case(peer=True)
async def replication_and_buckets(context: Context) -> None:
    """Code 17 for replicas that cannot be placed, 49 for too many buckets, -1 for none."""
    admin = await context.admin()
    for factor in ("0", "3"):
        replicas = {"table.replication.factor": factor}
        await raises(17, admin.create_table(context.path(), descriptor(properties=replicas)), "eplication")
    await raises(49, admin.create_table(context.path(), descriptor(bucket_count=33)), "33", "32")
    await raises(-1, admin.create_table(context.path(), descriptor(bucket_count=0)), "bucket")
    await context.create(TWO_COLUMNS, bucket_count=32)


@case()
async def no_lake_snapshot(context: Context) -> None:
    """Code 53 for a table that was never tiered."""
    path = await context.create(TWO_COLUMNS)
    await raises(53, (await context.admin()).get_latest_lake_snapshot(path), f"{context.database}.t")


@case(peer=True)
async def lake_snapshot(context: Context) -> None:
    """The newest snapshot of a tiered table, with the offset of every bucket."""
    properties = {} if context.is_apache else {"table.datalake.enabled": "true"}
    path = await context.create(TWO_COLUMNS, bucket_count=2, bucket_keys=["id"], properties=properties)
    admin = await context.admin()
    table_id = (await admin.get_table_info(path)).table_id
    await context.ask(f"tiered {context.database} t")
    for number in (1, 2):
        await context.ask(f"lake_snapshot {context.database} t {number + 40} {number * 10} {number}")
    found = await admin.get_latest_lake_snapshot(path)
    assert found.snapshot_id == 42
    offsets = {(bucket.table_id, bucket.bucket_id): offset for bucket, offset in found.table_buckets_offset.items()}
    assert offsets == {(table_id, 0): 20, (table_id, 1): 2}
    assert found.get_bucket_offset(fluss.TableBucket(table_id, 0)) == 20
