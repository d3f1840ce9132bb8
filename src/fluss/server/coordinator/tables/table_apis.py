"""CREATE_TABLE and DROP_TABLE. Checks are in the order of Apache Fluss, so that it reports the same mistake first.

A table is usable on every tablet when CREATE_TABLE is answered: leaders are a function of ids, and each process
refreshes its catalog before every lookup.
"""

from __future__ import annotations

from collections.abc import Awaitable

from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import TableDescriptor, table_descriptor_from_json
from fluss.model.names import check_database_name, check_table_name
from fluss.model.paths import TablePath
from fluss.model.properties import DATALAKE_ENABLED
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.apis.environment import Environment, table_path
from fluss.server.catalog import TableEntry
from fluss.server.catalog.store import database_missing
from fluss.server.coordinator.lake.lake_tables import LakeTables
from fluss.server.coordinator.lake.offsets_files import OffsetsFiles
from fluss.server.coordinator.tables.auto_partition import AutoPartitioner
from fluss.server.coordinator.tables.replicas import check_placement
from fluss.server.coordinator.tables.table_defaults import cluster_defaults, typed, with_defaults
from fluss.server.coordinator.tables.table_rules import TableLimits, check_table
from fluss.server.runtime.handlers import RequestContext


class TableApis:
    """Handlers that create and drop tables."""

    def __init__(
        self, environment: Environment, auto_partitioner: AutoPartitioner, lake: LakeTables, lake_files: OffsetsFiles
    ) -> None:
        self._environment = environment
        self._lake_files = lake_files
        self._auto_partitioner = auto_partitioner
        self._lake = lake

    def create_table(
        self, context: RequestContext, request: pb.CreateTableRequest
    ) -> pb.CreateTableResponse | Awaitable[pb.CreateTableResponse]:
        """Create a table. An invalid descriptor is refused even if the table exists and `ignore_if_exists` is set."""
        environment = self._environment
        environment.catalog.refresh()
        path = table_path(request.table_path)
        check_path(path)
        descriptor = self._checked_descriptor(path, request.table_json)
        if request.ignore_if_exists and environment.catalog.table(path) is not None:
            return pb.CreateTableResponse()
        environment.check_disk_room(f"table '{path}'")
        if typed(descriptor.properties, DATALAKE_ENABLED):
            return self._create_lake_first(path, descriptor, request.ignore_if_exists)
        return self._create(path, descriptor)

    async def _create_lake_first(
        self, path: TablePath, descriptor: TableDescriptor, ignore_if_exists: bool
    ) -> pb.CreateTableResponse:
        """Create the lake table, then the Fluss table. If the latter fails, the next attempt uses the lake table."""
        environment = self._environment
        async with self._lake.lock(path):
            environment.catalog.refresh()
            if environment.catalog.database(path.database_name) is None:
                raise database_missing(path.database_name)
            if environment.catalog.table(path) is None:
                await self._lake.create(path, descriptor)
                environment.catalog.refresh()
            if ignore_if_exists and environment.catalog.table(path) is not None:
                return pb.CreateTableResponse()  # a concurrent request created the table
            return self._create(path, descriptor)

    def _create(self, path: TablePath, descriptor: TableDescriptor) -> pb.CreateTableResponse:
        environment = self._environment
        environment.catalog.store.create_table(path, descriptor, environment.clock())
        environment.catalog.refresh()
        self._auto_partitioner.update_table(environment.table(path))
        return pb.CreateTableResponse()

    def _checked_descriptor(self, path: TablePath, document: bytes) -> TableDescriptor:
        environment = self._environment
        try:
            descriptor = table_descriptor_from_json(document)
        except ValueError as error:
            raise FlussError(f"table '{path}': {error}", ErrorCode.INVALID_TABLE_EXCEPTION) from None
        self._check_kind_allowed(path, descriptor)
        try:
            defaults = cluster_defaults(environment.config, environment.catalog.cluster_config)
            descriptor = with_defaults(descriptor, defaults)
            check_table(descriptor, TableLimits(environment.config.max_bucket_num, defaults))
            if not descriptor.is_partitioned:
                check_placement(environment, descriptor)
        except FlussError as error:
            raise FlussError(f"table '{path}': {error.message}", error.error_code) from None
        return descriptor

    def _check_kind_allowed(self, path: TablePath, descriptor: TableDescriptor) -> None:
        config = self._environment.config
        allowed, kind, option = (
            (config.allow_create_kv_tables, "primary-key tables", "allow.create.kv.tables")
            if descriptor.has_primary_key
            else (config.allow_create_log_tables, "log tables", "allow.create.log.tables")
        )
        if not allowed:
            raise FlussError(
                f"table '{path}': this server does not allow {kind}; set the server option {option!r} to true",
                ErrorCode.INVALID_TABLE_EXCEPTION,
            )

    def drop_table(
        self, context: RequestContext, request: pb.DropTableRequest
    ) -> pb.DropTableResponse | Awaitable[pb.DropTableResponse]:
        """Drop a table. Its name is free at once; tablets delete the files soon after. A lake table is kept."""
        environment = self._environment
        environment.catalog.refresh()
        path = table_path(request.table_path)
        entry = environment.catalog.table(path)
        if request.ignore_if_not_exists and entry is None:
            return pb.DropTableResponse()
        was_tiered = entry is not None and environment.catalog.store.lake.latest(entry.table_id) is not None
        environment.catalog.store.drop_table(path)
        if entry is not None and was_tiered:
            return self._remove_lake_files(entry)
        return pb.DropTableResponse()

    async def _remove_lake_files(self, entry: TableEntry) -> pb.DropTableResponse:
        await self._lake_files.remove_all(entry)
        return pb.DropTableResponse()


def check_path(path: TablePath) -> None:
    """Raise code 16 for an invalid database name, 15 for an invalid table name."""
    check_database_name(path.database_name)
    check_table_name(path.table_name)
