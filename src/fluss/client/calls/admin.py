"""The admin calls as coroutines of the I/O thread: messages out, public values in. `FlussAdmin` is the public class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from fluss.client.calls.bucket_offsets import EARLIEST, LATEST, TIMESTAMP, list_bucket_offsets
from fluss.client.calls.table_info import TableInfo
from fluss.client.net.cluster import Cluster
from fluss.errors import ErrorCode, FlussError
from fluss.model import descriptor as wire
from fluss.model.names import PARTITION_NAME_SEPARATOR
from fluss.model.paths import TablePath
from fluss.model.schema import Column, schema_from_json
from fluss.model.types import data_type_to_json
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.values.basic import (
    LakeSnapshot,
    OffsetSpec,
    OffsetType,
    PartitionInfo,
    PartitionSpec,
    ServerNode,
    TableBucket,
)
from fluss.values.data_types import as_data_type
from fluss.values.databases import DatabaseDescriptor, DatabaseInfo, model_database
from fluss.values.descriptors import TableDescriptor, model_table
from fluss.values.schema import SchemaInfo, public_schema

if TYPE_CHECKING:
    from google.protobuf.message import Message

_OFFSET_NUMBERS = {OffsetType.EARLIEST: EARLIEST, OffsetType.LATEST: LATEST, OffsetType.TIMESTAMP: TIMESTAMP}
SET_VALUE, REMOVE_VALUE, APPEND_TO_LIST, REMOVE_FROM_LIST = 0, 1, 2, 3
COLUMN_LAST = 0

NewColumns: TypeAlias = pa.Schema | Mapping[str, object] | Sequence[Any]


@dataclass(frozen=True)
class ConfigEntry:
    """An option of the cluster, its value (None if it is secret or not set) and the source of the value."""

    name: str
    value: str | None
    source: str


class AdminCalls:
    """One method per call; all run on the I/O thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def _read(self, api_key: int, request: Message) -> Any:
        return await self._cluster.call_coordinator(api_key, request, idempotent=True)

    async def _write(self, api_key: int, request: Message) -> None:
        await self._cluster.call_coordinator(api_key, request)

    # ---- databases ----

    async def create_database(self, name: str, descriptor: DatabaseDescriptor | None, ignore: bool) -> None:
        request = pb.CreateDatabaseRequest(database_name=name, ignore_if_exists=ignore)
        if descriptor is not None:
            request.database_json = wire.dump_json(wire.database_descriptor_to_json(model_database(descriptor)))
        await self._write(ApiKey.CREATE_DATABASE, request)

    async def drop_database(self, name: str, ignore: bool, cascade: bool) -> None:
        request = pb.DropDatabaseRequest(database_name=name, ignore_if_not_exists=ignore, cascade=cascade)
        await self._write(ApiKey.DROP_DATABASE, request)

    async def alter_database(
        self, name: str, changes: Iterable[pb.PbAlterConfig], comment: str | None, ignore: bool
    ) -> None:
        request = pb.AlterDatabaseRequest(
            database_name=name, ignore_if_not_exists=ignore, config_changes=changes, comment=comment
        )
        await self._write(ApiKey.ALTER_DATABASE, request)

    async def list_databases(self) -> list[str]:
        answer = await self._read(ApiKey.LIST_DATABASES, pb.ListDatabasesRequest())
        return list(answer.database_name)

    async def database_exists(self, name: str) -> bool:
        answer = await self._read(ApiKey.DATABASE_EXISTS, pb.DatabaseExistsRequest(database_name=name))
        return bool(answer.exists)

    async def get_database_info(self, name: str) -> DatabaseInfo:
        answer = await self._read(ApiKey.GET_DATABASE_INFO, pb.GetDatabaseInfoRequest(database_name=name))
        try:
            inner = wire.database_descriptor_from_json(answer.database_json)
        except ValueError as error:
            raise _unreadable(f"database {name}", error) from None
        descriptor = DatabaseDescriptor(inner.comment, inner.custom_properties)
        return DatabaseInfo(name, descriptor, answer.created_time, answer.modified_time)

    # ---- tables ----

    async def create_table(self, path: TablePath, descriptor: TableDescriptor, ignore: bool) -> None:
        document = wire.dump_json(wire.table_descriptor_to_json(model_table(descriptor)))
        request = pb.CreateTableRequest(table_path=_path(path), table_json=document, ignore_if_exists=ignore)
        await self._write(ApiKey.CREATE_TABLE, request)

    async def drop_table(self, path: TablePath, ignore: bool) -> None:
        request = pb.DropTableRequest(table_path=_path(path), ignore_if_not_exists=ignore)
        await self._write(ApiKey.DROP_TABLE, request)
        self._cluster.metadata.forget_table(path)

    async def alter_table(
        self, path: TablePath, changes: Iterable[pb.PbAlterConfig], columns: Iterable[Column], ignore: bool
    ) -> None:
        request = pb.AlterTableRequest(table_path=_path(path), ignore_if_not_exists=ignore, config_changes=changes)
        for column in columns:
            request.add_columns.add(
                column_name=column.name,
                data_type_json=wire.dump_json(data_type_to_json(column.data_type)),
                comment=column.comment,
                column_position_type=COLUMN_LAST,
            )
        await self._write(ApiKey.ALTER_TABLE, request)
        self._cluster.metadata.forget_table(path)

    async def get_table_info(self, path: TablePath) -> TableInfo:
        return TableInfo(await self._cluster.table_info(path))

    async def get_table_schema(self, path: TablePath, schema_id: int | None) -> SchemaInfo:
        request = pb.GetTableSchemaRequest(table_path=_path(path), schema_id=schema_id)
        answer = await self._read(ApiKey.GET_TABLE_SCHEMA, request)
        try:
            schema = schema_from_json(wire.load_json(answer.schema_json))
        except ValueError as error:
            raise _unreadable(f"the schema of table {path}", error) from None
        return SchemaInfo(public_schema(schema), answer.schema_id)

    async def list_tables(self, database_name: str) -> list[str]:
        answer = await self._read(ApiKey.LIST_TABLES, pb.ListTablesRequest(database_name=database_name))
        return list(answer.table_name)

    async def table_exists(self, path: TablePath) -> bool:
        answer = await self._read(ApiKey.TABLE_EXISTS, pb.TableExistsRequest(table_path=_path(path)))
        return bool(answer.exists)

    # ---- partitions ----

    async def create_partition(self, path: TablePath, spec: Mapping[str, str], ignore: bool) -> None:
        request = pb.CreatePartitionRequest(
            table_path=_path(path), partition_spec=_spec(spec), ignore_if_not_exists=ignore
        )
        await self._write(ApiKey.CREATE_PARTITION, request)

    async def drop_partition(self, path: TablePath, spec: Mapping[str, str], ignore: bool) -> None:
        request = pb.DropPartitionRequest(
            table_path=_path(path), partition_spec=_spec(spec), ignore_if_not_exists=ignore
        )
        await self._write(ApiKey.DROP_PARTITION, request)
        self._cluster.metadata.forget_table(path)

    async def list_partition_infos(self, path: TablePath, spec: Mapping[str, str] | None) -> list[PartitionInfo]:
        request = pb.ListPartitionInfosRequest(table_path=_path(path))
        if spec:
            request.partial_partition_spec.CopyFrom(_spec(spec))
        answer = await self._read(ApiKey.LIST_PARTITION_INFOS, request)
        infos = []
        for entry in answer.partitions_info:
            values = {pair.key: pair.value for pair in entry.partition_spec.partition_key_values}
            name = PARTITION_NAME_SEPARATOR.join(values.values())
            infos.append(PartitionInfo(entry.partition_id, name, PartitionSpec(values)))
        return infos

    # ---- offsets ----

    async def list_offsets(
        self, path: TablePath, partition_name: str | None, bucket_ids: Sequence[int], spec: OffsetSpec
    ) -> dict[int, int]:
        """One offset per bucket of a table, or of one of its partitions."""
        table = await self._cluster.table(path)
        _check_partitioning(path, table.is_partitioned, partition_name)
        partition_id = None if partition_name is None else await self._cluster.partition_id(path, partition_name)
        for bucket_id in bucket_ids:
            if not 0 <= bucket_id < table.bucket_count:
                raise FlussError(f"buckets of table {path} are 0 to {table.bucket_count - 1}, got {bucket_id}")
        buckets = [TableBucket.with_partition(table.table_id, partition_id, each) for each in dict.fromkeys(bucket_ids)]
        kind, timestamp_ms = _OFFSET_NUMBERS[spec.offset_type], spec.timestamp_ms
        offsets = await list_bucket_offsets(self._cluster, path, buckets, kind, timestamp_ms)
        return {bucket.bucket_id: offsets[bucket] for bucket in buckets}

    # ---- lake and cluster ----

    async def get_lake_snapshot(self, path: TablePath, snapshot_id: int | None) -> LakeSnapshot:
        request = pb.GetLakeSnapshotRequest(table_path=_path(path), snapshot_id=snapshot_id)
        answer = await self._read(ApiKey.GET_LAKE_SNAPSHOT, request)
        return lake_snapshot(answer)

    async def get_server_nodes(self) -> list[ServerNode]:
        await self._cluster.refresh(fresh=True)
        return self._cluster.metadata.nodes()

    async def describe_cluster_configs(self) -> list[ConfigEntry]:
        answer = await self._read(ApiKey.DESCRIBE_CLUSTER_CONFIGS, pb.DescribeClusterConfigsRequest())
        return [
            ConfigEntry(
                entry.config_key, entry.config_value if entry.HasField("config_value") else None, entry.config_source
            )
            for entry in answer.configs
        ]

    async def alter_cluster_configs(self, changes: Iterable[pb.PbAlterConfig]) -> None:
        await self._write(ApiKey.ALTER_CLUSTER_CONFIGS, pb.AlterClusterConfigsRequest(alter_configs=changes))


def lake_snapshot(answer: pb.GetLakeSnapshotResponse) -> LakeSnapshot:
    """The snapshot in an answer; buckets without an offset are omitted."""
    offsets = {
        TableBucket.with_partition(
            answer.table_id, entry.partition_id if entry.HasField("partition_id") else None, entry.bucket_id
        ): entry.log_offset
        for entry in answer.bucket_snapshots
        if entry.HasField("log_offset")
    }
    return LakeSnapshot(answer.snapshotId, offsets)


def config_changes(kind: int, values: Mapping[str, object] | Iterable[str] | None) -> list[pb.PbAlterConfig]:
    """Changes of one kind, from a dict of values, or from keys alone for removals."""
    if values is None:
        return []
    if isinstance(values, str):
        raise FlussError(f"option keys must be a list, got the string {values!r}; write [{values!r}]")
    if not isinstance(values, Mapping):
        return [pb.PbAlterConfig(config_key=key, op_type=kind) for key in values]
    return [
        pb.PbAlterConfig(config_key=key, config_value=_value_text(value), op_type=kind) for key, value in values.items()
    ]


def _value_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def new_columns(columns: NewColumns | None) -> list[Column]:
    """Columns to add: an Arrow schema, Arrow fields, (name, type) pairs or a dict of names to types."""
    if columns is None:
        return []
    items = columns.items() if isinstance(columns, Mapping) else columns
    result = []
    for item in items:
        if isinstance(item, Column):
            result.append(item)
        elif isinstance(item, pa.Field):
            result.append(Column(item.name, as_data_type(item.type, item.nullable)))
        else:
            name, data_type, *comment = item
            result.append(Column(name, as_data_type(data_type), *comment))
    return result


def _path(path: TablePath) -> pb.PbTablePath:
    return pb.PbTablePath(database_name=path.database_name, table_name=path.table_name)


def _spec(spec: Mapping[str, str]) -> pb.PbPartitionSpec:
    if not isinstance(spec, Mapping):
        raise FlussError(f"a partition spec must be a dict such as {{'region': 'US'}}, got {spec!r}")
    pairs = []
    for key, value in spec.items():
        if not isinstance(value, str):
            raise FlussError(f"the value of partition column {key!r} must be a string, got {value!r}")
        pairs.append(pb.PbKeyValue(key=key, value=value))
    return pb.PbPartitionSpec(partition_key_values=pairs)


def _check_partitioning(path: TablePath, is_partitioned: bool, partition_name: str | None) -> None:
    if is_partitioned and partition_name is None:
        raise FlussError(
            f"table {path} is partitioned: use list_partition_offsets with a partition name",
            ErrorCode.PARTITION_NOT_EXISTS,
        )
    if not is_partitioned and partition_name is not None:
        raise FlussError(f"table {path} has no partitions", ErrorCode.TABLE_NOT_PARTITIONED_EXCEPTION)


def _unreadable(what: str, error: ValueError) -> FlussError:
    return FlussError(
        f"the server's description of {what} cannot be read by this client: {error}", ErrorCode.CORRUPT_MESSAGE
    )
