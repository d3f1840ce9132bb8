"""ALTER_TABLE: changes properties, or adds columns at the end. The lake table is changed first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from fluss.errors import ErrorCode, FlussError
from fluss.model import properties as keys
from fluss.model.aggregation import AGGREGATION_FUNCTIONS, broken_function_rule, normalized_function
from fluss.model.descriptor import TableDescriptor, load_json
from fluss.model.paths import TablePath
from fluss.model.schema import Column, Schema, assign_field_ids
from fluss.model.types import DataType, data_type_from_json
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.apis.environment import Environment, table_path
from fluss.server.catalog import TableEntry
from fluss.server.catalog.store import table_missing
from fluss.server.coordinator.lake.lake_tables import LakeTables
from fluss.server.coordinator.tables.auto_partition import AutoPartitioner
from fluss.server.coordinator.tables.config_changes import apply_changes, checked_change
from fluss.server.coordinator.tables.table_apis import check_path
from fluss.server.coordinator.tables.table_defaults import ClusterDefaults, cluster_defaults, invalid_config, typed
from fluss.server.coordinator.tables.table_rules import TableLimits, check_reserved_names, check_table
from fluss.server.runtime.handlers import RequestContext

POSITION_LAST = 0
# How often a change that begins in the lake is attempted while other requests change the table.
LAKE_ATTEMPTS = 3


@dataclass(frozen=True)
class _Change:
    """A planned change of a table. `lake_step` changes the lake table, and runs before the table itself is changed."""

    entry: TableEntry
    descriptor: TableDescriptor
    new_schema: bool
    lake_step: Callable[[], Awaitable[None]] | None = None


class AlterTableApi:
    """The handler for ALTER_TABLE. A request changes either properties or columns."""

    def __init__(self, environment: Environment, auto_partitioner: AutoPartitioner, lake: LakeTables) -> None:
        self._environment = environment
        self._auto_partitioner = auto_partitioner
        self._lake = lake

    def alter_table(
        self, context: RequestContext, request: pb.AlterTableRequest
    ) -> pb.AlterTableResponse | Awaitable[pb.AlterTableResponse]:
        change = self._planned(request)
        if change is not None and change.lake_step is not None:
            return self._alter_lake_first(request)
        return self._applied(change)

    async def _alter_lake_first(self, request: pb.AlterTableRequest) -> pb.AlterTableResponse:
        """Do the lake step, then change the table; plan again if another request changed the table meanwhile."""
        path = table_path(request.table_path)
        async with self._lake.lock(path):
            for _ in range(LAKE_ATTEMPTS):
                change = self._planned(request)
                if change is None or change.lake_step is None:
                    return self._applied(change)
                with _naming(path):
                    await change.lake_step()
                self._environment.catalog.refresh()
                if self._environment.catalog.table(path) == change.entry:
                    return self._applied(change)
        raise _invalid_alter(
            f"table '{path}' was changed by others in all of {LAKE_ATTEMPTS} attempts; repeat the call"
        )

    def _planned(self, request: pb.AlterTableRequest) -> _Change | None:
        """Return the checked change, or None if there is nothing to do."""
        environment = self._environment
        environment.catalog.refresh()
        path = table_path(request.table_path)
        check_path(path)
        refused = [*request.drop_columns, *request.rename_columns, *request.modify_columns]
        if request.config_changes and (request.add_columns or refused):
            raise _invalid_alter(f"table '{path}': properties and columns cannot be changed in one request; send two")
        entry = environment.catalog.table(path)
        if entry is None:
            if request.ignore_if_not_exists:
                return None
            raise table_missing(path)
        if refused:
            raise FlussError(
                f"table '{path}': columns can be added at the end, not dropped, renamed or modified",
                ErrorCode.UNKNOWN_SERVER_ERROR,
            )
        with _naming(path):
            if request.add_columns:
                return self._with_columns(entry, request.add_columns)
            return self._with_properties(entry, request.config_changes)

    def _applied(self, change: _Change | None) -> pb.AlterTableResponse:
        if change is None:
            return pb.AlterTableResponse()
        environment, entry = self._environment, change.entry
        if change.new_schema:
            environment.catalog.store.add_schema(entry.path, entry.table_id, change.descriptor)
        else:
            environment.catalog.store.alter_table(entry.path, entry.table_id, change.descriptor, environment.clock())
            environment.catalog.refresh()
            self._auto_partitioner.update_table(environment.table(entry.path))
        return pb.AlterTableResponse()

    def _defaults(self) -> ClusterDefaults:
        return cluster_defaults(self._environment.config, self._environment.catalog.cluster_config)

    # Properties

    def _with_properties(self, entry: TableEntry, changes: Iterable[pb.PbAlterConfig]) -> _Change | None:
        table_changes: list[pb.PbAlterConfig] = []
        custom_changes: list[pb.PbAlterConfig] = []
        for change in changes:
            checked_change(change)
            is_table_key = change.config_key.startswith(keys.TABLE_PROPERTY_PREFIX)
            (table_changes if is_table_key else custom_changes).append(change)
        descriptor = entry.descriptor
        changed_keys = [change.config_key for change in table_changes]
        _check_alterable(descriptor, changed_keys)
        defaults = self._defaults()
        properties = apply_changes(descriptor.properties, table_changes)
        enables = typed(properties, keys.DATALAKE_ENABLED) and not typed(descriptor.properties, keys.DATALAKE_ENABLED)
        if enables:
            if defaults.lake.table_format is None:
                raise _invalid_alter(
                    "cannot enable the lake: the cluster has none; set the server option 'datalake.enabled' to true"
                )
            properties.setdefault(keys.DATALAKE_FORMAT, defaults.lake.table_format)
        altered = replace(
            descriptor,
            properties=properties,
            custom_properties=apply_changes(descriptor.custom_properties, custom_changes),
        )
        if altered == descriptor:
            return None
        check_table(altered, TableLimits(self._environment.config.max_bucket_num, defaults))
        return _Change(entry, altered, new_schema=False, lake_step=self._lake_step(entry, altered, enables))

    def _lake_step(
        self, entry: TableEntry, altered: TableDescriptor, enables: bool
    ) -> Callable[[], Awaitable[None]] | None:
        """The lake step of changed properties. Disabling the lake has none, because it must work without a lake."""
        if enables:
            return partial(self._lake.enable, entry.path, entry.table_id, altered)
        lake_format = typed(altered.properties, keys.DATALAKE_FORMAT)
        before, after = (
            {key: value for key, value in each.custom_properties.items() if key.startswith(f"{lake_format}.")}
            for each in (entry.descriptor, altered)
        )
        if before == after or not typed(altered.properties, keys.DATALAKE_ENABLED):
            return None
        return partial(self._lake.change_properties, entry.path, entry.descriptor, altered)

    # Columns

    def _with_columns(self, entry: TableEntry, added: Iterable[pb.PbAddColumn]) -> _Change:
        descriptor = entry.descriptor
        has_lake = typed(descriptor.properties, keys.DATALAKE_ENABLED)
        if has_lake and not self._defaults().lake.enabled:
            raise _invalid_alter(
                "cannot add a column: the table has a lake, but the cluster has none; set the server option "
                "'datalake.enabled' to true, or disable the table's lake"
            )
        schema = descriptor.schema
        for message in added:
            schema = _with_column(schema, descriptor, message)
        new_columns = schema.columns[len(descriptor.schema.columns) :]
        lake_step = partial(self._lake.add_columns, entry.path, descriptor, new_columns) if has_lake else None
        return _Change(entry, replace(descriptor, schema=schema), new_schema=True, lake_step=lake_step)


@contextmanager
def _naming(path: TablePath) -> Iterator[None]:
    """Put the name of the table in front of errors that the block raises."""
    try:
        yield
    except FlussError as error:
        raise FlussError(f"table '{path}': {error.message}", error.error_code) from None


def _check_alterable(descriptor: TableDescriptor, changed: list[str]) -> None:
    fixed = [key for key in changed if key not in keys.ALTERABLE_TABLE_PROPERTIES]
    if fixed:
        raise _invalid_alter(
            f"these properties cannot be altered: {', '.join(fixed)}; "
            f"alterable are {', '.join(sorted(keys.ALTERABLE_TABLE_PROPERTIES))}"
        )
    if keys.KV_STANDBY_REPLICA in changed and not descriptor.has_primary_key:
        raise _invalid_alter(f"{keys.KV_STANDBY_REPLICA} requires a table with a primary key")
    lake_keys = [key for key in changed if key.startswith(keys.DATALAKE_PROPERTY_PREFIX)]
    if not lake_keys or keys.DATALAKE_FORMAT in descriptor.properties:
        return
    # Without primary and bucket keys, neither keys nor buckets of existing rows depend on the lake format.
    free_of_format = not descriptor.has_primary_key and not descriptor.bucket_keys
    if lake_keys != [keys.DATALAKE_ENABLED] or not free_of_format:
        raise _invalid_alter(
            f"{', '.join(lake_keys)} cannot be altered: the table was created without {keys.DATALAKE_FORMAT}; "
            f"create a new table with {keys.DATALAKE_ENABLED}=true"
        )


def _with_column(schema: Schema, descriptor: TableDescriptor, message: pb.PbAddColumn) -> Schema:
    name = message.column_name
    if name in schema:
        raise _invalid_alter(f"column {name!r} already exists; choose another name")
    check_reserved_names((name,))
    if message.column_position_type != POSITION_LAST:
        raise FlussError(
            f"column {name!r} can only be added at the end (position 0), got position {message.column_position_type}",
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )
    data_type = _data_type(message)
    if not data_type.nullable:
        raise FlussError(
            f"column {name!r} must be nullable, because existing rows have no value for it; got type {data_type}",
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )
    column_id = schema.highest_field_id + 1
    data_type, next_id = assign_field_ids(data_type, column_id + 1)
    column = Column(
        name,
        data_type,
        message.comment if message.HasField("comment") else None,
        column_id,
        _function(descriptor, message, data_type),
    )
    return replace(schema, columns=(*schema.columns, column), highest_field_id=next_id - 1)


def _data_type(message: pb.PbAddColumn) -> DataType:
    try:
        return data_type_from_json(load_json(message.data_type_json))
    except ValueError as error:
        raise _invalid_alter(f"column {message.column_name!r}: {error}") from None


def _function(descriptor: TableDescriptor, message: pb.PbAddColumn, data_type: DataType) -> Mapping[str, object] | None:
    if not message.HasField("agg_function_type"):
        return None
    parameters = {pair.key: pair.value for pair in message.agg_function_params}
    function = normalized_function({"type": message.agg_function_type, "parameters": parameters})
    if function is None:
        raise invalid_config(
            f"column {message.column_name!r}: unknown aggregation function {message.agg_function_type!r}; "
            f"use one of {', '.join(AGGREGATION_FUNCTIONS)}"
        )
    if typed(descriptor.properties, keys.MERGE_ENGINE) != "aggregation":
        raise invalid_config(
            f"column {message.column_name!r} has an aggregation function, which requires "
            f"{keys.MERGE_ENGINE}=aggregation"
        )
    rule = broken_function_rule(function, data_type)
    if rule is not None:
        raise invalid_config(f"column {message.column_name!r}: {rule}")
    return function


def _invalid_alter(message: str) -> FlussError:
    return FlussError(message, ErrorCode.INVALID_ALTER_TABLE_EXCEPTION)
