"""ALTER_TABLE: properties, or new columns at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fluss.errors import ErrorCode, FlussError
from fluss.model import properties as keys
from fluss.model.aggregation import broken_function_rule, normalized_function
from fluss.model.descriptor import TableDescriptor, load_json
from fluss.model.schema import Column, Schema, assign_field_ids
from fluss.model.types import DataType, data_type_from_json
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.catalog import TableEntry
from fluss.server.catalog.store import table_missing
from fluss.server.coordinator.auto_partition import AutoPartitioner
from fluss.server.coordinator.config_changes import apply_changes, checked_change
from fluss.server.coordinator.table_apis import check_path
from fluss.server.coordinator.table_defaults import ClusterDefaults, cluster_defaults, invalid_config, typed
from fluss.server.coordinator.table_rules import TableLimits, check_reserved_names, check_table
from fluss.server.environment import Environment, table_path
from fluss.server.network.service import RequestContext
from fluss.server.security.authorizer import Operation

POSITION_LAST = 0


class AlterTableApi:
    """One change of a table per request: its properties or its columns."""

    def __init__(self, environment: Environment, auto_partitioner: AutoPartitioner) -> None:
        self._environment = environment
        self._auto_partitioner = auto_partitioner

    def alter_table(self, context: RequestContext, request: pb.AlterTableRequest) -> pb.AlterTableResponse:
        environment = self._environment
        environment.catalog.refresh()
        path = table_path(request.table_path)
        check_path(path)
        environment.authorizer.check_table(context, Operation.ALTER, path)
        refused = [*request.drop_columns, *request.rename_columns, *request.modify_columns]
        if request.config_changes and (request.add_columns or refused):
            raise _invalid_alter(f"table '{path}': change properties and columns in two requests")
        entry = environment.catalog.table(path)
        if entry is None:
            if request.ignore_if_not_exists:
                return pb.AlterTableResponse()
            raise table_missing(path)
        if refused:
            raise FlussError(
                f"table '{path}': columns can be added at the end, not dropped, renamed or modified",
                ErrorCode.UNKNOWN_SERVER_ERROR,
            )
        try:
            if request.add_columns:
                self._add_columns(entry, request.add_columns)
            elif request.config_changes:
                self._change_properties(entry, request.config_changes)
        except FlussError as error:
            raise FlussError(f"table '{path}': {error.message}", error.error_code) from None
        return pb.AlterTableResponse()

    def _defaults(self) -> ClusterDefaults:
        return cluster_defaults(self._environment.config, self._environment.catalog.cluster_config)

    # Properties

    def _change_properties(self, entry: TableEntry, changes: Iterable[pb.PbAlterConfig]) -> None:
        environment = self._environment
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
        if typed(properties, keys.DATALAKE_ENABLED) and not typed(descriptor.properties, keys.DATALAKE_ENABLED):
            if not defaults.lake_enabled or defaults.lake_format is None:
                raise _invalid_alter("the lake cannot be enabled: this cluster has none ('datalake.format' is not set)")
            properties.setdefault(keys.DATALAKE_FORMAT, defaults.lake_format)
        altered = replace(
            descriptor,
            properties=properties,
            custom_properties=apply_changes(descriptor.custom_properties, custom_changes),
        )
        if altered == descriptor:
            return
        check_table(altered, TableLimits(environment.config.max_bucket_num, defaults))
        environment.catalog.store.alter_table(entry.path, entry.table_id, altered, environment.clock())
        environment.catalog.refresh()
        self._auto_partitioner.update_table(environment.table(entry.path))

    # Columns

    def _add_columns(self, entry: TableEntry, added: Iterable[pb.PbAddColumn]) -> None:
        environment = self._environment
        descriptor = entry.descriptor
        if typed(descriptor.properties, keys.DATALAKE_ENABLED) and not self._defaults().lake_enabled:
            raise _invalid_alter("its lake is enabled but the cluster has no lake, so no column can be added")
        schema = descriptor.schema
        for message in added:
            schema = _with_column(schema, descriptor, message)
        environment.catalog.store.add_schema(entry.path, entry.table_id, replace(descriptor, schema=schema))


def _check_alterable(descriptor: TableDescriptor, changed: list[str]) -> None:
    fixed = [key for key in changed if key not in keys.ALTERABLE_TABLE_PROPERTIES]
    if fixed:
        raise _invalid_alter(
            f"these properties cannot be altered: {', '.join(fixed)}; "
            f"alterable are {', '.join(sorted(keys.ALTERABLE_TABLE_PROPERTIES))}"
        )
    if keys.KV_STANDBY_REPLICA in changed and not descriptor.has_primary_key:
        raise _invalid_alter(f"{keys.KV_STANDBY_REPLICA} is for tables with a primary key")
    lake_keys = [key for key in changed if key.startswith(keys.DATALAKE_PROPERTY_PREFIX)]
    if not lake_keys or keys.DATALAKE_FORMAT in descriptor.properties:
        return
    # Keys and buckets of the rows written so far do not depend on a lake format only in this one case.
    free_of_format = not descriptor.has_primary_key and not descriptor.bucket_keys
    if lake_keys != [keys.DATALAKE_ENABLED] or not free_of_format:
        raise _invalid_alter(
            f"{', '.join(lake_keys)} cannot be altered: the table was created without {keys.DATALAKE_FORMAT}; "
            "create it anew in a cluster with a lake"
        )


def _with_column(schema: Schema, descriptor: TableDescriptor, message: pb.PbAddColumn) -> Schema:
    name = message.column_name
    if name in schema:
        raise _invalid_alter(f"there is a column {name!r} already")
    check_reserved_names((name,))
    if message.column_position_type != POSITION_LAST:
        raise FlussError(
            f"column {name!r} can only be added at the end (position 0), got position {message.column_position_type}",
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )
    data_type = _data_type(message)
    if not data_type.nullable:
        raise FlussError(
            f"column {name!r} must be nullable: rows written before have no value for it",
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


def _function(descriptor: TableDescriptor, message: pb.PbAddColumn, data_type: DataType) -> Mapping[str, Any] | None:
    if not message.HasField("agg_function_type"):
        return None
    parameters = {pair.key: pair.value for pair in message.agg_function_params}
    function = normalized_function({"type": message.agg_function_type, "parameters": parameters})
    if function is None:
        raise invalid_config(
            f"column {message.column_name!r}: {message.agg_function_type!r} is no aggregation function"
        )
    if typed(descriptor.properties, keys.MERGE_ENGINE) != "aggregation":
        raise invalid_config(
            f"column {message.column_name!r} has an aggregation function; that needs {keys.MERGE_ENGINE}=aggregation"
        )
    rule = broken_function_rule(function, data_type)
    if rule is not None:
        raise invalid_config(f"column {message.column_name!r}: {rule}")
    return function


def _invalid_alter(message: str) -> FlussError:
    return FlussError(message, ErrorCode.INVALID_ALTER_TABLE_EXCEPTION)
