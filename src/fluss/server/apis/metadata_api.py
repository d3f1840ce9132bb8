"""GET_METADATA: which server serves what, with addresses on the listener that the client used."""

from __future__ import annotations

from collections.abc import Iterable

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket, TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.apis.authorizer import table_resource
from fluss.server.apis.environment import Environment
from fluss.server.apis.placement import leader_of
from fluss.server.catalog import PartitionEntry, TableEntry
from fluss.server.catalog.store import partition_missing
from fluss.server.runtime.handlers import RequestContext

COORDINATOR_NODE_ID = 0
LEADER_EPOCH = 0


class MetadataApi:
    """Answers from the catalog and the fixed topology; a bucket has a leader as soon as its table exists."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def get_metadata(self, context: RequestContext, request: pb.MetadataRequest) -> pb.MetadataResponse:
        """Return the requested tables and partitions; one that does not exist fails the whole request.

        Elements that the caller may not see are left out, whether they exist or not.
        """
        self._environment.catalog.refresh()
        response = pb.MetadataResponse()
        self._add_nodes(response, context.listener)
        tables = self._tables(context, request)
        for entry in tables.values():
            self._add_table(response, entry)
        for entry, partition in self._partitions(context, request, tables):
            self._add_partition(response, entry, partition)
        return response

    def _visible(self, context: RequestContext, path: TablePath) -> bool:
        return self._environment.authorizer.permits(context, table_resource(path))

    def _add_nodes(self, response: pb.MetadataResponse, listener: str) -> None:
        topology = self._environment.topology
        coordinator = topology.coordinator.get(listener)
        if coordinator is not None:
            host, port = coordinator
            response.coordinator_server.CopyFrom(pb.PbServerNode(node_id=COORDINATOR_NODE_ID, host=host, port=port))
        for server_id, addresses in enumerate(topology.tablets):
            if listener in addresses:
                host, port = addresses[listener]
                node = response.tablet_servers.add(node_id=server_id, host=host, port=port)
                if self._environment.config.rack is not None:
                    node.rack = self._environment.config.rack

    def _tables(self, context: RequestContext, request: pb.MetadataRequest) -> dict[TablePath, TableEntry]:
        """The requested tables. A partition path without a partition name means the table itself."""
        paths = [TablePath(path.database_name, path.table_name) for path in request.table_path]
        paths += [
            TablePath(path.database_name, path.table_name)
            for path in request.partitions_path
            if not path.HasField("partition_name")
        ]
        distinct = dict.fromkeys(paths)
        return {path: self._environment.table(path) for path in distinct if self._visible(context, path)}

    def _partitions(
        self, context: RequestContext, request: pb.MetadataRequest, tables: dict[TablePath, TableEntry]
    ) -> Iterable[tuple[TableEntry, PartitionEntry]]:
        catalog = self._environment.catalog
        found: dict[int, tuple[TableEntry, PartitionEntry]] = {}
        visible: dict[TablePath, bool] = {}
        for physical_path in request.partitions_path:
            if not physical_path.HasField("partition_name"):
                continue
            path = TablePath(physical_path.database_name, physical_path.table_name)
            if path not in visible:
                visible[path] = self._visible(context, path)
            if not visible[path]:
                continue
            entry = catalog.table(path)
            partition = None if entry is None else entry.partitions.get(physical_path.partition_name)
            if entry is None or partition is None:
                raise partition_missing(path, physical_path.partition_name)
            found[partition.partition_id] = (entry, partition)
        for partition_id in request.partitions_id:
            pair = catalog.partition_by_id(partition_id)
            if pair is not None and not self._visible(context, pair[0].path):
                continue
            # If the request has tables, a partition id must belong to one of them: clients fail on other table ids.
            if pair is None or (tables and pair[0].path not in tables):
                raise _unknown_partition_id(partition_id, tables)
            found[partition_id] = pair
        return found.values()

    def _add_table(self, response: pb.MetadataResponse, entry: TableEntry) -> None:
        table = response.table_metadata.add(
            table_id=entry.table_id,
            schema_id=entry.schema_id,
            table_json=entry.table_json,
            created_time=entry.created_time,
            modified_time=entry.modified_time,
            remote_data_dir=self._environment.config.remote_data_dir,
        )
        table.table_path.database_name = entry.path.database_name
        table.table_path.table_name = entry.path.table_name
        if not entry.is_partitioned:
            table.bucket_metadata.extend(self._buckets(entry, None))

    def _add_partition(self, response: pb.MetadataResponse, entry: TableEntry, partition: PartitionEntry) -> None:
        response.partition_metadata.add(
            table_id=entry.table_id,
            partition_name=partition.name,
            partition_id=partition.partition_id,
            bucket_metadata=self._buckets(entry, partition.partition_id),
        )

    def _buckets(self, entry: TableEntry, partition_id: int | None) -> Iterable[pb.PbBucketMetadata]:
        tablet_count = self._environment.topology.tablet_count
        for bucket_id in range(entry.bucket_count):
            leader = leader_of(TableBucket(entry.table_id, partition_id, bucket_id), tablet_count)
            yield pb.PbBucketMetadata(
                bucket_id=bucket_id, leader_id=leader, replica_id=[leader], leader_epoch=LEADER_EPOCH
            )


def _unknown_partition_id(partition_id: int, tables: dict[TablePath, TableEntry]) -> FlussError:
    where = f" in {', '.join(str(path) for path in tables)}" if tables else ""
    return FlussError(
        f"partition id {partition_id} does not exist{where}; it may have been dropped: list the partitions again",
        ErrorCode.PARTITION_NOT_EXISTS,
    )
