"""A client's metadata of tables, partitions and leaders: a cache, filled from GET_METADATA answers.

No I/O here. An answer replaces the servers and merges everything else; a bucket has a leader only when the answer names
one that is among its tablet servers. Entries are dropped when a call shows that they are wrong (`forget_*`). At most
`MAX_CACHED_TABLES` tables with `MAX_CACHED_PARTITIONS_PER_TABLE` partitions each are kept; the oldest are dropped
first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import TableDescriptor, table_descriptor_from_json
from fluss.model.paths import TableBucket, TablePath
from fluss.model.properties import DATALAKE_ENABLED, DATALAKE_FORMAT, property_value
from fluss.model.schema import Schema
from fluss.protocol import fluss_api_pb2 as pb
from fluss.values.basic import COORDINATOR_SERVER, TABLET_SERVER, ServerNode

MAX_CACHED_TABLES = 10_000
MAX_CACHED_PARTITIONS_PER_TABLE = 10_000

_NO_LEADERS: dict[int, int] = {}


@dataclass(frozen=True)
class ClientTable:
    """A table as the servers describe it, at one moment."""

    path: TablePath
    table_id: int
    schema_id: int
    descriptor: TableDescriptor
    created_time: int
    modified_time: int
    remote_data_dir: str | None = None

    @property
    def schema(self) -> Schema:
        return self.descriptor.schema

    @cached_property
    def bucket_count(self) -> int:
        return self.descriptor.bucket_count or 1

    @property
    def is_partitioned(self) -> bool:
        return self.descriptor.is_partitioned

    @property
    def has_primary_key(self) -> bool:
        return self.descriptor.has_primary_key

    @cached_property
    def has_lake(self) -> bool:
        """True if it is tiered to a lake that this client can read; other formats count as none."""
        properties = self.descriptor.properties
        is_readable = property_value(properties, DATALAKE_FORMAT) in (None, "iceberg")
        return bool(property_value(properties, DATALAKE_ENABLED)) and is_readable

    def property(self, key: str, default: str | None = None) -> str | None:
        """A table property as a string."""
        return self.descriptor.properties.get(key, default)


def read_table(
    path: TablePath, table_id: int, schema_id: int, table_json: bytes, created: int, modified: int, remote: str | None
) -> ClientTable:
    """A table from the fields common to GET_METADATA and GET_TABLE_INFO."""
    try:
        descriptor = table_descriptor_from_json(table_json)
    except ValueError as error:
        text = f"the server's description of table {path} cannot be read by this client: {error}"
        raise FlussError(text, ErrorCode.CORRUPT_MESSAGE) from None
    return ClientTable(path, table_id, schema_id, descriptor, created, modified, remote)


class MetadataCache:
    """Used on the I/O thread only."""

    def __init__(self) -> None:
        self.coordinator: ServerNode | None = None
        self.tablets: dict[int, ServerNode] = {}
        self._tables: OrderedDict[TablePath, ClientTable] = OrderedDict()
        self._partition_ids: dict[TablePath, dict[str, int]] = {}
        # (table id, partition id or None) -> bucket id -> node id
        self._leaders: dict[tuple[int, int | None], dict[int, int]] = {}

    # ---- reading ----

    def table(self, path: TablePath) -> ClientTable | None:
        table = self._tables.get(path)
        if table is not None:
            self._tables.move_to_end(path)
        return table

    def partition_id(self, path: TablePath, partition_name: str) -> int | None:
        return self._partition_ids.get(path, {}).get(partition_name)

    def leader(self, bucket: TableBucket) -> ServerNode | None:
        """The tablet server that leads a bucket, if known."""
        node_id = self._leaders.get(bucket[:2], _NO_LEADERS).get(bucket.bucket_id)
        return None if node_id is None else self.tablets.get(node_id)

    def nodes(self) -> list[ServerNode]:
        """All known servers, the coordinator first."""
        return ([] if self.coordinator is None else [self.coordinator]) + list(self.tablets.values())

    # ---- forgetting ----

    def forget_leader(self, bucket: TableBucket) -> None:
        self._leaders.get(bucket[:2], {}).pop(bucket.bucket_id, None)

    def forget_server(self, node_id: int) -> None:
        """Drop a server as the leader of any bucket, until an answer names it again."""
        for leaders in self._leaders.values():
            for bucket_id in [bucket_id for bucket_id, leader in leaders.items() if leader == node_id]:
                del leaders[bucket_id]

    def forget_partition(self, path: TablePath, partition_name: str) -> None:
        """Drop a partition, which may have been dropped and created again; its next use asks a server."""
        self._partition_ids.get(path, {}).pop(partition_name, None)

    def forget_table(self, path: TablePath) -> None:
        table = self._tables.pop(path, None)
        partition_ids = self._partition_ids.pop(path, {})
        if table is not None:
            for partition_id in (None, *partition_ids.values()):
                self._leaders.pop((table.table_id, partition_id), None)

    # ---- merging ----

    def merge(self, answer: pb.MetadataResponse) -> None:
        """Merge an answer. Unreadable tables raise after everything else was merged."""
        self._merge_nodes(answer)
        unreadable: FlussError | None = None
        paths_by_id = {table.table_id: path for path, table in self._tables.items()}
        for entry in answer.table_metadata:
            try:
                table = self._merge_table(entry)
            except FlussError as error:
                unreadable = error
                continue
            paths_by_id[table.table_id] = table.path
        for partition in answer.partition_metadata:
            path = paths_by_id.get(partition.table_id)
            if path is None:
                continue  # no caller could ask for it, and it would never be dropped
            known = self._partition_ids.setdefault(path, {})
            known[partition.partition_name] = partition.partition_id
            if len(known) > MAX_CACHED_PARTITIONS_PER_TABLE:
                self._leaders.pop((partition.table_id, known.pop(next(iter(known)))), None)
            self._merge_leaders(partition.table_id, partition.partition_id, partition.bucket_metadata)
        if unreadable is not None:
            raise unreadable

    def _merge_nodes(self, answer: pb.MetadataResponse) -> None:
        if answer.HasField("coordinator_server"):
            self.coordinator = _node(answer.coordinator_server, COORDINATOR_SERVER)
        if answer.tablet_servers:
            self.tablets = {node.node_id: _node(node, TABLET_SERVER) for node in answer.tablet_servers}

    def _merge_table(self, entry: pb.PbTableMetadata) -> ClientTable:
        path = TablePath(entry.table_path.database_name, entry.table_path.table_name)
        known = self._tables.get(path)
        if known is not None and known.table_id != entry.table_id:
            self.forget_table(path)  # dropped and created again: the old entries are invalid
        table = read_table(
            path,
            entry.table_id,
            entry.schema_id,
            entry.table_json,
            entry.created_time,
            entry.modified_time,
            entry.remote_data_dir if entry.HasField("remote_data_dir") else None,
        )
        self._tables[path] = table
        self._tables.move_to_end(path)
        while len(self._tables) > MAX_CACHED_TABLES:
            self.forget_table(next(iter(self._tables)))
        self._merge_leaders(entry.table_id, None, entry.bucket_metadata)
        return table

    def _merge_leaders(self, table_id: int, partition_id: int | None, buckets: Iterable[pb.PbBucketMetadata]) -> None:
        leaders = self._leaders.setdefault((table_id, partition_id), {})
        for bucket in buckets:
            if bucket.HasField("leader_id") and bucket.leader_id in self.tablets:
                leaders[bucket.bucket_id] = bucket.leader_id
            else:
                leaders.pop(bucket.bucket_id, None)


def _node(node: pb.PbServerNode, server_type: str) -> ServerNode:
    return ServerNode(node.node_id, node.host, node.port, server_type, node.rack if node.HasField("rack") else None)
