"""The read-only APIs that coordinator and tablets both serve.

They have no state: every answer comes from the process's catalog, which is refreshed at the start of the request, so
all processes give the same answer once a change is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import (
    database_descriptor_to_json,
    dump_json,
    table_descriptor_to_json,
)
from fluss.model.names import DEFAULT_DATABASE, HISTORICAL_PARTITION
from fluss.model.paths import TablePath
from fluss.model.properties import DATALAKE_ENABLED, DATALAKE_FORMAT, DATALAKE_PROPERTY_PREFIX
from fluss.model.schema import schema_to_json
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.apis.acl_apis import AclApis
from fluss.server.apis.authorizer import database_resource, table_resource
from fluss.server.apis.cluster_apis import ClusterApis
from fluss.server.apis.environment import Environment, table_path
from fluss.server.apis.metadata_api import MetadataApi
from fluss.server.apis.permission_checks import with_permission_checks
from fluss.server.apis.snapshot_apis import SnapshotApis
from fluss.server.apis.topology import Topology
from fluss.server.catalog import Catalog, PartitionEntry, TableEntry
from fluss.server.catalog.store import database_missing
from fluss.server.config.lake_settings import lake_settings
from fluss.server.config.server_config import ServerConfig
from fluss.server.runtime.handlers import Handler, RequestContext


class SharedApis:
    """Serves databases, tables, schemas and partitions by name, and collects the other handlers of this folder."""

    def __init__(self, config: ServerConfig, catalog: Catalog, topology: Topology, clock: Callable[[], int]) -> None:
        self.environment = Environment.of(config, catalog, topology, clock)

    def apis(self) -> Mapping[int, Handler]:
        """Return the handlers that all roles share, by API key."""
        cluster = ClusterApis(self.environment)
        snapshots = SnapshotApis(self.environment)
        handlers: Mapping[int, Handler] = {
            ApiKey.LIST_DATABASES: self.list_databases,
            ApiKey.GET_DATABASE_INFO: self.get_database_info,
            ApiKey.DATABASE_EXISTS: self.database_exists,
            ApiKey.LIST_TABLES: self.list_tables,
            ApiKey.GET_TABLE_INFO: self.get_table_info,
            ApiKey.GET_TABLE_SCHEMA: self.get_table_schema,
            ApiKey.TABLE_EXISTS: self.table_exists,
            ApiKey.LIST_PARTITION_INFOS: self.list_partition_infos,
            ApiKey.GET_METADATA: MetadataApi(self.environment).get_metadata,
            ApiKey.GET_LATEST_KV_SNAPSHOTS: snapshots.get_latest_kv_snapshots,
            ApiKey.GET_KV_SNAPSHOT_METADATA: snapshots.get_kv_snapshot_metadata,
            ApiKey.GET_LAKE_SNAPSHOT: snapshots.get_lake_snapshot,
            ApiKey.GET_FILESYSTEM_SECURITY_TOKEN: snapshots.get_file_system_security_token,
            ApiKey.LIST_ACLS: AclApis(self.environment).list_acls,
            ApiKey.DESCRIBE_CLUSTER_CONFIGS: cluster.describe_cluster_configs,
            ApiKey.GET_CLUSTER_HEALTH: cluster.get_cluster_health,
        }
        return with_permission_checks(self.environment, handlers)

    # Databases

    def list_databases(self, context: RequestContext, request: pb.ListDatabasesRequest) -> pb.ListDatabasesResponse:
        catalog = self.environment.catalog
        catalog.refresh()
        visible = [entry for name, entry in sorted(catalog.databases.items()) if self._database_visible(context, name)]
        response = pb.ListDatabasesResponse()
        if not request.include_summary:
            response.database_name.extend(entry.name for entry in visible)
            return response
        for entry in visible:
            response.database_summary.add(
                database_name=entry.name,
                created_time=entry.created_time,
                table_count=len(catalog.tables_of(entry.name)),
            )
        return response

    def _database_visible(self, context: RequestContext, name: str) -> bool:
        return self.environment.authorizer.permits(context, database_resource(name))

    def get_database_info(
        self, context: RequestContext, request: pb.GetDatabaseInfoRequest
    ) -> pb.GetDatabaseInfoResponse:
        self.environment.catalog.refresh()
        name = request.database_name
        entry = self.environment.catalog.database(name)
        if entry is None:
            raise database_missing(name)
        return pb.GetDatabaseInfoResponse(
            database_json=dump_json(database_descriptor_to_json(entry.descriptor)),
            created_time=entry.created_time,
            modified_time=entry.modified_time,
        )

    def database_exists(self, context: RequestContext, request: pb.DatabaseExistsRequest) -> pb.DatabaseExistsResponse:
        catalog = self.environment.catalog
        catalog.refresh()
        name = request.database_name
        visible = name == DEFAULT_DATABASE or self._database_visible(context, name)
        return pb.DatabaseExistsResponse(exists=visible and catalog.database(name) is not None)

    # Tables

    def list_tables(self, context: RequestContext, request: pb.ListTablesRequest) -> pb.ListTablesResponse:
        catalog = self.environment.catalog
        catalog.refresh()
        name = request.database_name
        if catalog.database(name) is None and self._database_visible(context, name):
            raise database_missing(name)  # other callers get an empty list, as for a database that they may not see
        return pb.ListTablesResponse(
            table_name=[
                entry.path.table_name
                for entry in catalog.tables_of(request.database_name)
                if self._table_visible(context, entry.path)
            ]
        )

    def _table_visible(self, context: RequestContext, path: TablePath) -> bool:
        return self.environment.authorizer.permits(context, table_resource(path))

    def get_table_info(self, context: RequestContext, request: pb.GetTableInfoRequest) -> pb.GetTableInfoResponse:
        entry = self.environment.fresh_table(table_path(request.table_path))
        return pb.GetTableInfoResponse(
            table_id=entry.table_id,
            schema_id=entry.schema_id,
            table_json=self._table_json(entry),
            created_time=entry.created_time,
            modified_time=entry.modified_time,
            remote_data_dir=self.environment.config.remote_data_dir,
        )

    def _table_json(self, entry: TableEntry) -> bytes:
        """The descriptor of a table as JSON. If it has a lake, this includes how to reach the lake, without secrets."""
        if not entry.property(DATALAKE_ENABLED):
            return entry.table_json
        lake_format = entry.property(DATALAKE_FORMAT)
        settings = lake_settings(self.environment.config, self.environment.catalog.cluster_config)
        document = table_descriptor_to_json(entry.descriptor)
        for key, value in settings.shown_to_clients(lake_format).items():
            document["properties"][f"{DATALAKE_PROPERTY_PREFIX}{lake_format}.{key}"] = value
        return dump_json(document)

    def get_table_schema(self, context: RequestContext, request: pb.GetTableSchemaRequest) -> pb.GetTableSchemaResponse:
        path = table_path(request.table_path)
        self.environment.catalog.refresh()
        entry = self.environment.catalog.table(path)
        schema_id = request.schema_id if request.HasField("schema_id") else entry.schema_id if entry else 0
        schema = entry.schemas.get(schema_id) if entry else None
        if schema is None:
            reason = f"it has schemas 1 to {entry.schema_id}" if entry else "the table does not exist"
            raise FlussError(f"table '{path}' has no schema with id {schema_id}: {reason}", ErrorCode.SCHEMA_NOT_EXIST)
        return pb.GetTableSchemaResponse(schema_id=schema_id, schema_json=dump_json(schema_to_json(schema)))

    def table_exists(self, context: RequestContext, request: pb.TableExistsRequest) -> pb.TableExistsResponse:
        self.environment.catalog.refresh()
        path = table_path(request.table_path)
        exists = self.environment.catalog.table(path) is not None
        return pb.TableExistsResponse(exists=exists and self._table_visible(context, path))

    # Partitions

    def list_partition_infos(
        self, context: RequestContext, request: pb.ListPartitionInfosRequest
    ) -> pb.ListPartitionInfosResponse:
        entry = self.environment.fresh_table(table_path(request.table_path))
        check_partitioned(entry)
        partitions = [partition for partition in entry.partitions.values() if partition.name != HISTORICAL_PARTITION]
        wanted = partition_spec(request.partial_partition_spec)
        response = pb.ListPartitionInfosResponse()
        for partition in _matching(entry, partitions, wanted):
            info = response.partitions_info.add(
                partition_id=partition.partition_id, remote_data_dir=self.environment.config.remote_data_dir
            )
            for key, value in zip(entry.descriptor.partition_keys, partition.values, strict=True):
                info.partition_spec.partition_key_values.add(key=key, value=value)
        return response


def partition_spec(message: pb.PbPartitionSpec) -> list[tuple[str, str]]:
    """Return the keys and values of a partition spec in the order of the message."""
    return [(pair.key, pair.value) for pair in message.partition_key_values]


def check_partitioned(entry: TableEntry) -> None:
    """Raise code 37 for a table without partitions."""
    if not entry.is_partitioned:
        raise FlussError(
            f"table '{entry.path}' is not partitioned; only tables created with partition keys have partitions",
            ErrorCode.TABLE_NOT_PARTITIONED_EXCEPTION,
        )


def _matching(
    entry: TableEntry, partitions: list[PartitionEntry], wanted: list[tuple[str, str]]
) -> list[PartitionEntry]:
    keys = entry.descriptor.partition_keys
    for key, _ in wanted:
        if key not in keys and partitions:
            raise FlussError(
                f"{key!r} is not a partition key of table '{entry.path}'; its partition keys are {', '.join(keys)}",
                ErrorCode.UNKNOWN_SERVER_ERROR,
            )
    return [
        partition
        for partition in partitions
        if all(partition.values[keys.index(key)] == value for key, value in wanted)
    ]
