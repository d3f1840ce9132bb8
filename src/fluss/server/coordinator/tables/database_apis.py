"""The handlers of CREATE_DATABASE, ALTER_DATABASE and DROP_DATABASE."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from dataclasses import replace

from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import DatabaseDescriptor, database_descriptor_from_json
from fluss.model.names import DEFAULT_DATABASE, check_database_name
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.apis.environment import Environment
from fluss.server.catalog import TableEntry
from fluss.server.catalog.store import database_exists, database_missing
from fluss.server.coordinator.lake.offsets_files import OffsetsFiles
from fluss.server.coordinator.tables.config_changes import apply_changes
from fluss.server.runtime.handlers import RequestContext
from fluss.server.runtime.time_slices import TimeSlices

TABLES_PER_STEP = 50


class DatabaseApis:
    """Handlers that change databases; each change is durable when it is answered."""

    def __init__(self, environment: Environment, lake_files: OffsetsFiles) -> None:
        self._environment = environment
        self._lake_files = lake_files

    def create_database(self, context: RequestContext, request: pb.CreateDatabaseRequest) -> pb.CreateDatabaseResponse:
        environment = self._environment
        environment.catalog.refresh()
        name = request.database_name
        check_database_name(name)
        descriptor = DatabaseDescriptor()
        if request.HasField("database_json"):
            try:
                descriptor = database_descriptor_from_json(request.database_json)
            except ValueError as error:
                raise FlussError(f"database {name!r}: {error}", ErrorCode.INVALID_DATABASE_EXCEPTION) from None
        if environment.catalog.database(name) is not None:
            if request.ignore_if_exists:
                return pb.CreateDatabaseResponse()
            raise database_exists(name)
        environment.catalog.store.create_database(name, descriptor, environment.clock())
        return pb.CreateDatabaseResponse()

    def alter_database(self, context: RequestContext, request: pb.AlterDatabaseRequest) -> pb.AlterDatabaseResponse:
        environment = self._environment
        environment.catalog.refresh()
        name = request.database_name
        entry = environment.catalog.database(name)
        if entry is None:
            if request.ignore_if_not_exists:
                return pb.AlterDatabaseResponse()
            raise database_missing(name)
        descriptor = replace(
            entry.descriptor,
            custom_properties=apply_changes(entry.descriptor.custom_properties, request.config_changes),
        )
        if request.HasField("comment"):
            descriptor = replace(descriptor, comment=request.comment or None)
        if descriptor != entry.descriptor:
            environment.catalog.store.alter_database(name, descriptor, environment.clock())
        return pb.AlterDatabaseResponse()

    def drop_database(
        self, context: RequestContext, request: pb.DropDatabaseRequest
    ) -> pb.DropDatabaseResponse | Awaitable[pb.DropDatabaseResponse]:
        environment = self._environment
        environment.catalog.refresh()
        name = request.database_name
        if name == DEFAULT_DATABASE:
            raise FlussError(
                f"the default database {DEFAULT_DATABASE!r} cannot be dropped; drop its tables instead",
                ErrorCode.UNKNOWN_SERVER_ERROR,
            )
        if environment.catalog.database(name) is None and request.ignore_if_not_exists:
            return pb.DropDatabaseResponse()
        tables = list(environment.catalog.tables_of(name))
        if request.cascade and len(tables) > TABLES_PER_STEP:
            return self._drop_in_steps(name, tables)
        tiered = self._tiered(tables)
        environment.catalog.store.drop_database(name, cascade=request.cascade)
        return self._remove_lake_files(tiered) if tiered else pb.DropDatabaseResponse()

    async def _drop_in_steps(self, name: str, tables: list[TableEntry]) -> pb.DropDatabaseResponse:
        """Drop a database in steps, between which other requests are served; tables created meanwhile go too."""
        tiered, time_slices = [], TimeSlices()
        for entry in tables:
            tiered += self._tiered([entry])
            await time_slices.yield_if_over()
        store = self._environment.catalog.store
        while store.drop_tables_of(name, TABLES_PER_STEP):
            await time_slices.yield_if_over()
        store.drop_database(name, cascade=True)
        return await self._remove_lake_files(tiered)

    def _tiered(self, tables: Iterable[TableEntry]) -> list[TableEntry]:
        lake = self._environment.catalog.store.lake
        return [entry for entry in tables if lake.latest(entry.table_id) is not None]

    async def _remove_lake_files(self, tiered: Iterable[TableEntry]) -> pb.DropDatabaseResponse:
        for entry in tiered:
            await self._lake_files.remove_all(entry)
        return pb.DropDatabaseResponse()
