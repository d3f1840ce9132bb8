"""`FlussAdmin`: databases, tables, partitions, offsets, and the cluster itself: servers, options, permissions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fluss.api.cursors import Cursor
from fluss.client.calls.admin import (
    APPEND_TO_LIST,
    REMOVE_FROM_LIST,
    REMOVE_VALUE,
    SET_VALUE,
    AdminCalls,
    ConfigEntry,
    NewColumns,
    config_changes,
    new_columns,
)
from fluss.client.calls.operators import ClusterCalls, acls_of, acls_to_drop, goals_of, server_ids_of, tag_of
from fluss.client.calls.table_info import TableInfo
from fluss.client.net.self_awaitable import AwaitsToItself
from fluss.client.net.session import Session
from fluss.errors import FlussError
from fluss.model.paths import TablePath
from fluss.values.acls import Acl, acl_filter
from fluss.values.basic import (
    LakeSnapshot,
    OffsetSpec,
    OffsetType,
    PartitionInfo,
    ServerNode,
    TableBucket,
    as_table_path,
    resolve_offset_spec,
)
from fluss.values.databases import DatabaseDescriptor, DatabaseInfo
from fluss.values.descriptors import TableDescriptor
from fluss.values.rebalancing import RebalanceProgress
from fluss.values.schema import SchemaInfo

Path = TablePath | str


class FlussAdmin(AwaitsToItself):
    """Admin calls, from `conn.get_admin()`. All are coroutines; errors are `FlussError` with the server's code.

    An optional parameter of None counts as not given. A table is named by a `TablePath` or `"database.table"`.

    >>> admin = conn.get_admin()                                          # doctest: +SKIP
    >>> await admin.list_offsets("shop.orders", [0], OffsetSpec.latest())   # doctest: +SKIP
    {0: 1250}
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._calls = AdminCalls(session.cluster)
        self._cluster_calls = ClusterCalls(session.cluster)

    # ---- databases ----

    async def create_database(
        self,
        name: str | None = None,
        database_descriptor: DatabaseDescriptor | None = None,
        ignore_if_exists: bool | None = False,
        *,
        database_name: str | None = None,
    ) -> None:
        """Create a database. Code 6 if it exists (unless ignored), 16 for an invalid name."""
        name = _database(name, database_name)
        if database_descriptor is not None and not isinstance(database_descriptor, DatabaseDescriptor):
            raise FlussError(f"database_descriptor must be a DatabaseDescriptor, got {database_descriptor!r}")
        await self._session.awaitable(self._calls.create_database(name, database_descriptor, bool(ignore_if_exists)))

    async def drop_database(
        self,
        name: str | None = None,
        ignore_if_not_exists: bool | None = False,
        cascade: bool | None = True,
        *,
        database_name: str | None = None,
    ) -> None:
        """Drop a database with its tables. Code 4 if it does not exist; without `cascade`, code 5 if it has tables."""
        name = _database(name, database_name)
        drop_tables = True if cascade is None else cascade
        await self._session.awaitable(self._calls.drop_database(name, bool(ignore_if_not_exists), drop_tables))

    async def alter_database(
        self,
        name: str,
        *,
        set_properties: Mapping[str, str] | None = None,
        remove_properties: Iterable[str] | None = None,
        comment: str | None = None,
        ignore_if_not_exists: bool | None = False,
    ) -> None:
        """Change the comment and custom properties of a database. Code 2 if the server cannot (Apache Fluss 0.9)."""
        changes = config_changes(SET_VALUE, set_properties) + config_changes(REMOVE_VALUE, remove_properties)
        call = self._calls.alter_database(_database(name, None), changes, comment, bool(ignore_if_not_exists))
        await self._session.awaitable(call)

    async def list_databases(self) -> list[str]:
        """Names of all databases."""
        return await self._session.awaitable(self._calls.list_databases())

    async def database_exists(self, name: str | None = None, *, database_name: str | None = None) -> bool:
        """True if the database exists."""
        return await self._session.awaitable(self._calls.database_exists(_database(name, database_name)))

    async def get_database_info(self, name: str | None = None, *, database_name: str | None = None) -> DatabaseInfo:
        """Describe a database. Code 4 if it does not exist."""
        return await self._session.awaitable(self._calls.get_database_info(_database(name, database_name)))

    # ---- tables ----

    async def create_table(
        self, table_path: Path, table_descriptor: TableDescriptor, ignore_if_exists: bool | None = False
    ) -> None:
        """Create a table. Code 8 if it exists (unless ignored), 4 if its database does not exist."""
        path = as_table_path(table_path)
        if not isinstance(table_descriptor, TableDescriptor):
            raise FlussError(f"table_descriptor must be a TableDescriptor, got {type(table_descriptor).__name__}")
        await self._session.awaitable(self._calls.create_table(path, table_descriptor, bool(ignore_if_exists)))

    async def drop_table(self, table_path: Path, ignore_if_not_exists: bool | None = False) -> None:
        """Drop a table and its data. Code 7 if it does not exist (unless ignored)."""
        await self._session.awaitable(self._calls.drop_table(as_table_path(table_path), bool(ignore_if_not_exists)))

    async def alter_table(
        self,
        table_path: Path,
        *,
        add_columns: NewColumns | None = None,
        set_properties: Mapping[str, str] | None = None,
        remove_properties: Iterable[str] | None = None,
        ignore_if_not_exists: bool | None = False,
    ) -> None:
        """Add columns at the end, or change properties; not both in one call (code 56).

        New columns are given as an Arrow schema, a map `{"name": DataTypes.string()}`, or a list of Arrow fields or
        (name, type) pairs; they must be nullable. Properties that start with `table.` are read by the server, all
        others are custom properties.
        """
        changes = config_changes(SET_VALUE, set_properties) + config_changes(REMOVE_VALUE, remove_properties)
        path, columns = as_table_path(table_path), new_columns(add_columns)
        await self._session.awaitable(self._calls.alter_table(path, changes, columns, bool(ignore_if_not_exists)))

    async def get_table_info(self, table_path: Path) -> TableInfo:
        """Describe a table. Code 7 if it does not exist."""
        return await self._session.awaitable(self._calls.get_table_info(as_table_path(table_path)))

    async def get_table(self, table_path: Path) -> TableInfo:
        """Alias of `get_table_info`."""
        return await self.get_table_info(table_path)

    async def get_table_schema(self, table_path: Path, schema_id: int | None = None) -> SchemaInfo:
        """The schema of a table that has the id `schema_id`, by default the newest. Code 9 for an unknown id."""
        return await self._session.awaitable(self._calls.get_table_schema(as_table_path(table_path), schema_id))

    async def list_tables(self, database_name: str) -> list[str]:
        """Names of the tables of a database. Code 4 if it does not exist."""
        return await self._session.awaitable(self._calls.list_tables(_database(database_name, None)))

    async def table_exists(self, table_path: Path) -> bool:
        """True if the table exists."""
        return await self._session.awaitable(self._calls.table_exists(as_table_path(table_path)))

    # ---- partitions ----

    async def create_partition(
        self, table_path: Path, partition_spec: Mapping[str, str], ignore_if_exists: bool | None = False
    ) -> None:
        """Create a partition, e.g. `{"region": "US"}`. Code 42 if it exists, 37 if the table has no partitions."""
        path = as_table_path(table_path)
        await self._session.awaitable(self._calls.create_partition(path, partition_spec, bool(ignore_if_exists)))

    async def drop_partition(
        self, table_path: Path, partition_spec: Mapping[str, str], ignore_if_not_exists: bool | None = False
    ) -> None:
        """Drop a partition and its data. Code 36 if it does not exist (unless ignored)."""
        path = as_table_path(table_path)
        await self._session.awaitable(self._calls.drop_partition(path, partition_spec, bool(ignore_if_not_exists)))

    async def list_partition_infos(
        self, table_path: Path, partition_spec: Mapping[str, str] | None = None
    ) -> list[PartitionInfo]:
        """The partitions of a table; with values for some of the partition columns, only the matching ones."""
        path = as_table_path(table_path)
        return await self._session.awaitable(self._calls.list_partition_infos(path, partition_spec))

    # ---- offsets ----

    async def list_offsets(
        self,
        table_path: Path,
        bucket_ids: Sequence[int],
        offset_spec: OffsetSpec | OffsetType | str | None = None,
        *,
        offset_type: OffsetType | str | None = None,
        timestamp: int | None = None,
    ) -> dict[int, int]:
        """Offsets by bucket id, for `OffsetSpec.earliest()`, `.latest()` or `.timestamp(ms)`.

        Instead of an `OffsetSpec`, pass `offset_type="latest"`, or `offset_type="timestamp", timestamp=ms`.
        """
        spec = resolve_offset_spec(offset_spec, offset_type, timestamp)
        call = self._calls.list_offsets(as_table_path(table_path), None, _buckets(bucket_ids), spec)
        return await self._session.awaitable(call)

    async def list_partition_offsets(
        self,
        table_path: Path,
        partition_name: str,
        bucket_ids: Sequence[int],
        offset_spec: OffsetSpec | OffsetType | str | None = None,
        *,
        offset_type: OffsetType | str | None = None,
        timestamp: int | None = None,
    ) -> dict[int, int]:
        """`list_offsets` for one partition, which is named by its value (`US`, not `region=US`)."""
        spec = resolve_offset_spec(offset_spec, offset_type, timestamp)
        if not isinstance(partition_name, str):
            raise FlussError(f"partition_name must be a string such as 'US', got {partition_name!r}")
        call = self._calls.list_offsets(as_table_path(table_path), partition_name, _buckets(bucket_ids), spec)
        return await self._session.awaitable(call)

    # ---- cursors ----

    async def move_cursor(self, table_path: Path, name: str, offsets: Mapping[TableBucket, int]) -> None:
        """Store the position of a reader on the server, under a name: the next offset of every bucket.

        Requires permission to write the table, since the server treats these as offsets of a producer. A cursor that is
        not moved for a year is deleted.
        """
        cursor = await self._cursor(table_path, name)
        await self._session.awaitable(cursor.move(offsets))

    async def get_cursor(self, table_path: Path, name: str) -> dict[TableBucket, int] | None:
        """The next offset of each bucket, to subscribe a scanner there; None if there is no such cursor."""
        cursor = await self._cursor(table_path, name)
        return await self._session.awaitable(cursor.load())

    async def drop_cursor(self, table_path: Path, name: str) -> None:
        """Delete a cursor. Does not raise if it does not exist."""
        cursor = await self._cursor(table_path, name)
        await self._session.awaitable(cursor.drop())

    async def _cursor(self, table_path: Path, name: str) -> Cursor:
        info = await self.get_table_info(table_path)
        return Cursor(self._session.cluster, info.table_id, name)

    # ---- lake and cluster ----

    async def get_latest_lake_snapshot(self, table_path: Path) -> LakeSnapshot:
        """The newest snapshot of a table in the lake. Code 53 if there is none."""
        return await self._session.awaitable(self._calls.get_lake_snapshot(as_table_path(table_path), None))

    async def get_lake_snapshot(self, table_path: Path, snapshot_id: int) -> LakeSnapshot:
        """The snapshot of a table in the lake with this id. Code 53 if it does not exist."""
        path = as_table_path(table_path)
        return await self._session.awaitable(self._calls.get_lake_snapshot(path, snapshot_id))

    async def get_server_nodes(self) -> list[ServerNode]:
        """All servers that are alive, the coordinator first."""
        return await self._session.awaitable(self._calls.get_server_nodes())

    async def describe_cluster_configs(self) -> list[ConfigEntry]:
        """The options of the cluster that were set, with their values; options with default values are left out."""
        return await self._session.awaitable(self._calls.describe_cluster_configs())

    async def alter_cluster_configs(
        self,
        set_values: Mapping[str, str] | None = None,
        remove_values: Iterable[str] | None = None,
        *,
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
    ) -> None:
        """Change options of the running cluster. `append` and `subtract` add and remove elements of list options."""
        changes = config_changes(SET_VALUE, set_values) + config_changes(REMOVE_VALUE, remove_values)
        changes += config_changes(APPEND_TO_LIST, append) + config_changes(REMOVE_FROM_LIST, subtract)
        await self._session.awaitable(self._calls.alter_cluster_configs(changes))

    # ---- permissions ----

    async def create_acls(self, acls: Acl | Iterable[Acl]) -> None:
        """Grant permissions: `Acl("User:alice", "read", "cluster.shop.orders")`. Existing permissions are kept.

        All or none are granted. Code 47 if the cluster checks no permissions, 48 if the caller may not grant them.
        """
        await self._session.awaitable(self._cluster_calls.create_acls(acls_of(acls)))

    async def list_acls(
        self,
        *,
        principal: str | None = None,
        operation: str | None = None,
        resource: str | None = None,
        host: str | None = None,
    ) -> list[Acl]:
        """The permissions whose parts equal the given ones, as far as the caller may see them."""
        chosen = acl_filter(principal, operation, resource, host)
        return await self._session.awaitable(self._cluster_calls.list_acls(chosen))

    async def drop_acls(
        self,
        *,
        principal: str | None = None,
        operation: str | None = None,
        resource: str | None = None,
        host: str | None = None,
    ) -> list[Acl]:
        """Revoke the permissions whose parts equal the given ones, all or none of them; return them."""
        chosen = acls_to_drop(principal, operation, resource, host)
        return await self._session.awaitable(self._cluster_calls.drop_acls(chosen))

    # ---- where buckets are ----

    async def add_server_tag(self, server_ids: int | Iterable[int], tag: str) -> None:
        """Tag tablet servers as leaving: `permanent_offline` (no new buckets, on a cluster) or `temporary_offline`.

        Code 58 for an unknown server, 59 for one with another tag.
        """
        call = self._cluster_calls.add_server_tag(server_ids_of(server_ids), tag_of(tag))
        await self._session.awaitable(call)

    async def remove_server_tag(self, server_ids: int | Iterable[int], tag: str) -> None:
        """Remove a tag from tablet servers. Code 58 for an unknown server, 60 for one with another tag."""
        call = self._cluster_calls.remove_server_tag(server_ids_of(server_ids), tag_of(tag))
        await self._session.awaitable(call)

    async def rebalance(self, goals: Iterable[str] = ("replica_distribution", "leader_distribution")) -> str:
        """Start to distribute buckets over the servers; return the id of the rebalance. Code 61 while another one runs.

        Goals, in order of priority: replica_distribution, leader_distribution, rack_aware.
        """
        return await self._session.awaitable(self._cluster_calls.rebalance(goals_of(goals)))

    async def list_rebalance_progress(self, rebalance_id: str | None = None) -> RebalanceProgress | None:
        """The progress of the last rebalance; None if there has been none. Code 62 if its id is not `rebalance_id`."""
        return await self._session.awaitable(self._cluster_calls.list_rebalance_progress(_id(rebalance_id)))

    async def cancel_rebalance(self, rebalance_id: str | None = None) -> None:
        """Stop the running rebalance; moved buckets stay where they are. Code 62 if its id is not `rebalance_id`."""
        await self._session.awaitable(self._cluster_calls.cancel_rebalance(_id(rebalance_id)))

    async def drop_kv_snapshot_lease(self, lease_id: str) -> None:
        """Drop a lease that a reader never released, so that its snapshots can be deleted. It need not exist."""
        if _id(lease_id) is None:
            raise FlussError(f"lease_id must be a non-empty string, got {lease_id!r}")
        await self._session.awaitable(self._cluster_calls.drop_kv_snapshot_lease(lease_id))

    def __repr__(self) -> str:
        return f"FlussAdmin({self._session.config.bootstrap_servers!r})"


def _database(name: str | None, database_name: str | None) -> str:
    chosen = name if name is not None else database_name
    if not isinstance(chosen, str):
        raise FlussError(f"a database name must be a string, got {chosen!r}")
    return chosen


def _id(text: str | None) -> str | None:
    if text is not None and not isinstance(text, str):
        raise FlussError(f"rebalance_id must be a string, got {text!r}")
    return text


def _buckets(bucket_ids: Sequence[int]) -> list[int]:
    if isinstance(bucket_ids, int):
        raise FlussError(f"bucket_ids must be a list of ints, got {bucket_ids!r}; write [{bucket_ids!r}]")
    buckets = list(bucket_ids)
    if not buckets:
        raise FlussError("bucket_ids must not be empty; give the ids of the buckets, e.g. [0]")
    if not all(isinstance(bucket, int) for bucket in buckets):
        raise FlussError(f"bucket_ids must be a list of ints, got {bucket_ids!r}")
    return buckets
