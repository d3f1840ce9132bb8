"""Rules for tables: structure and properties, beyond what the descriptor itself checks.

`check_table` takes a descriptor with defaults filled in and raises an error with the code of the first broken rule. It
is a pure function, so CREATE_TABLE and ALTER_TABLE share it.
"""

from __future__ import annotations

from dataclasses import dataclass

from fluss.codec.keys.encoding import check_key_types, key_plan
from fluss.errors import ErrorCode, FlussError
from fluss.model import properties as keys
from fluss.model.aggregation import broken_function_rule
from fluss.model.descriptor import TableDescriptor
from fluss.model.names import RESERVED_COLUMN_NAMES
from fluss.model.types import DataType
from fluss.server.coordinator.tables.auto_partition_rules import check_auto_partition
from fluss.server.coordinator.tables.table_defaults import ClusterDefaults, invalid_config, typed

_NESTED = frozenset({"ARRAY", "MAP", "ROW"})
_PARTITION_KEY_TYPES = frozenset(
    {
        "CHAR",
        "STRING",
        "BOOLEAN",
        "BINARY",
        "BYTES",
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "DATE",
        "TIME_WITHOUT_TIME_ZONE",
        "FLOAT",
        "DOUBLE",
        "TIMESTAMP_WITHOUT_TIME_ZONE",
        "TIMESTAMP_WITH_LOCAL_TIME_ZONE",
    }
)
_STATISTICS_TYPES = (_PARTITION_KEY_TYPES | {"DECIMAL"}) - {"BINARY", "BYTES"}
_VERSION_TYPES = frozenset({"INTEGER", "BIGINT", "TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE"})
_ZSTD_LEVELS = range(1, 23)


@dataclass(frozen=True)
class TableLimits:
    """The limits and defaults of the cluster that the rules for tables need."""

    max_bucket_num: int
    defaults: ClusterDefaults


def check_table(descriptor: TableDescriptor, limits: TableLimits) -> None:
    """Raise an error for the first broken rule: 15 for structure, 39 for properties, 49 for too many buckets."""
    _check_known_properties(descriptor)
    check_bucket_count(descriptor, limits.max_bucket_num)
    _check_columns(descriptor)
    _check_formats(descriptor)
    _check_merge_engine(descriptor)
    _check_delete_behavior(descriptor)
    _check_log_tiering(descriptor)
    check_auto_partition(descriptor)
    _check_statistics(descriptor)
    _check_lake(descriptor, limits.defaults)
    _check_lake_keys(descriptor)


def _invalid_table(message: str) -> FlussError:
    return FlussError(message, ErrorCode.INVALID_TABLE_EXCEPTION)


def _check_known_properties(descriptor: TableDescriptor) -> None:
    for key in descriptor.properties:
        if not key.startswith(keys.TABLE_PROPERTY_PREFIX):
            raise invalid_config(
                f"property {key!r} must start with {keys.TABLE_PROPERTY_PREFIX!r}; put it into the custom properties"
            )
        if key not in keys.TABLE_PROPERTIES:
            raise invalid_config(f"unknown property {key!r}; check its name, or use a newer server")
        typed(descriptor.properties, key)
    factor = typed(descriptor.properties, keys.REPLICATION_FACTOR)
    if factor <= 0:
        raise FlussError(
            f"{keys.REPLICATION_FACTOR} must be at least 1, got {factor}", ErrorCode.INVALID_REPLICATION_FACTOR
        )


def check_bucket_count(descriptor: TableDescriptor, max_bucket_num: int) -> None:
    """Raise code 49 for a table, or partition, with too many buckets."""
    count = descriptor.bucket_count
    if count is not None and count > max_bucket_num:
        raise FlussError(
            f"{count} buckets exceed the limit of {max_bucket_num}; "
            "use fewer buckets or raise the server option 'max.bucket.num'",
            ErrorCode.BUCKET_MAX_NUM_EXCEPTION,
        )


def _check_columns(descriptor: TableDescriptor) -> None:
    schema = descriptor.schema
    check_reserved_names(schema.column_names)
    for what, names in (("primary-key", schema.primary_key), ("bucket-key", descriptor.bucket_keys)):
        for name in names:
            data_type = _type_of(descriptor, name)
            if data_type.root in _NESTED:
                raise _invalid_table(f"{what} column {name!r} must have a plain type, got the nested type {data_type}")
    for name in descriptor.partition_keys:
        data_type = _type_of(descriptor, name)
        if data_type.root not in _PARTITION_KEY_TYPES:
            raise _invalid_table(
                f"partition key {name!r} cannot have type {data_type}; use a plain type other than DECIMAL, "
                "for example STRING or DATE"
            )


def check_reserved_names(names: tuple[str, ...]) -> None:
    """Raise code 15 for a column with a reserved name."""
    for name in names:
        if name in RESERVED_COLUMN_NAMES:
            raise _invalid_table(
                f"column name {name!r} is reserved; the reserved names are {', '.join(sorted(RESERVED_COLUMN_NAMES))}"
            )


def _type_of(descriptor: TableDescriptor, name: str) -> DataType:
    schema = descriptor.schema
    return schema.columns[schema.position(name)].data_type


def _check_formats(descriptor: TableDescriptor) -> None:
    properties = descriptor.properties
    log_format = typed(properties, keys.LOG_FORMAT)
    if descriptor.has_primary_key and typed(properties, keys.KV_FORMAT) == "COMPACTED" and log_format == "INDEXED":
        raise invalid_config(
            f"{keys.KV_FORMAT}=COMPACTED requires {keys.LOG_FORMAT} ARROW or COMPACTED, got {log_format}"
        )
    level = typed(properties, keys.COMPRESSION_ZSTD_LEVEL)
    if level not in _ZSTD_LEVELS:
        raise invalid_config(f"{keys.COMPRESSION_ZSTD_LEVEL} must be from 1 to 22, got {level}")


def _check_merge_engine(descriptor: TableDescriptor) -> None:
    properties = descriptor.properties
    engine = typed(properties, keys.MERGE_ENGINE)
    if engine is not None and not descriptor.has_primary_key:
        raise invalid_config(f"{keys.MERGE_ENGINE}={engine} requires a table with a primary key")
    if engine == "versioned":
        _check_version_column(descriptor)
    if engine == "aggregation" and typed(properties, keys.CHANGELOG_IMAGE) == "WAL":
        raise invalid_config(
            f"{keys.MERGE_ENGINE}=aggregation cannot be used with {keys.CHANGELOG_IMAGE}=WAL; leave one of them out"
        )
    for column in descriptor.schema.columns:
        if column.agg_function is None:
            continue
        if engine != "aggregation":
            raise invalid_config(
                f"column {column.name!r} has an aggregation function, which requires {keys.MERGE_ENGINE}=aggregation"
            )
        rule = broken_function_rule(column.agg_function, column.data_type)
        if rule is not None:
            raise invalid_config(f"column {column.name!r}: {rule}")


def _check_version_column(descriptor: TableDescriptor) -> None:
    name = descriptor.properties.get(keys.MERGE_ENGINE_VERSION_COLUMN)
    if name is None:
        raise invalid_config(
            f"{keys.MERGE_ENGINE}=versioned requires {keys.MERGE_ENGINE_VERSION_COLUMN}; set it to the name of a column"
        )
    if name not in descriptor.schema:
        raise invalid_config(
            f"{keys.MERGE_ENGINE_VERSION_COLUMN} must be one of the columns "
            f"({', '.join(descriptor.schema.column_names)}), got {name!r}"
        )
    data_type = _type_of(descriptor, name)
    if data_type.root not in _VERSION_TYPES:
        raise invalid_config(
            f"{keys.MERGE_ENGINE_VERSION_COLUMN}: column {name!r} must be INT, BIGINT, TIMESTAMP or TIMESTAMP_LTZ, "
            f"not {data_type}"
        )


def _check_delete_behavior(descriptor: TableDescriptor) -> None:
    properties = descriptor.properties
    if keys.DELETE_BEHAVIOR not in properties:
        return
    if not descriptor.has_primary_key:
        raise invalid_config(f"{keys.DELETE_BEHAVIOR} requires a table with a primary key")
    engine = typed(properties, keys.MERGE_ENGINE)
    if typed(properties, keys.DELETE_BEHAVIOR) == "ALLOW" and engine in ("first_row", "versioned"):
        raise invalid_config(
            f"{keys.DELETE_BEHAVIOR} must be ignore or disable for {keys.MERGE_ENGINE}={engine}, got allow"
        )


def _check_log_tiering(descriptor: TableDescriptor) -> None:
    properties = descriptor.properties
    segments = typed(properties, keys.LOG_TIERED_LOCAL_SEGMENTS)
    if segments <= 0:
        raise invalid_config(f"{keys.LOG_TIERED_LOCAL_SEGMENTS} must be at least 1, got {segments}")
    local_ttl, ttl = typed(properties, keys.LOG_LOCAL_TTL), typed(properties, keys.LOG_TTL)
    if local_ttl is not None and 0 < ttl < local_ttl:
        raise invalid_config(f"{keys.LOG_LOCAL_TTL} ({local_ttl} ms) must not be longer than {keys.LOG_TTL} ({ttl} ms)")


def _check_statistics(descriptor: TableDescriptor) -> None:
    text = descriptor.properties.get(keys.STATISTICS_COLUMNS)
    if text is None:
        return
    if descriptor.has_primary_key:
        raise invalid_config(f"{keys.STATISTICS_COLUMNS} is for log tables; this table has a primary key")
    if text.strip() == "*":
        return
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise invalid_config(f"{keys.STATISTICS_COLUMNS} must be '*' or a list of columns, got {text!r}")
    for name in names:
        if name not in descriptor.schema:
            raise invalid_config(
                f"{keys.STATISTICS_COLUMNS} must name columns of the table "
                f"({', '.join(descriptor.schema.column_names)}), got {name!r}"
            )
        data_type = _type_of(descriptor, name)
        if data_type.root not in _STATISTICS_TYPES:
            raise invalid_config(
                f"{keys.STATISTICS_COLUMNS}: column {name!r} of type {data_type} has no statistics; leave it out"
            )


def _check_lake(descriptor: TableDescriptor, defaults: ClusterDefaults) -> None:
    properties = descriptor.properties
    enabled = typed(properties, keys.DATALAKE_ENABLED)
    table_format = typed(properties, keys.DATALAKE_FORMAT)
    cluster_format = defaults.lake.table_format
    if enabled and table_format != cluster_format:
        raise invalid_config(
            f"{keys.DATALAKE_FORMAT} must be {cluster_format}, as for the lake of the cluster, got {table_format}"
        )
    if not typed(properties, keys.DATALAKE_HISTORICAL_PARTITION):
        return
    missing = [
        text
        for is_there, text in (
            (typed(properties, keys.AUTO_PARTITION_ENABLED), f"{keys.AUTO_PARTITION_ENABLED}=true"),
            (enabled, f"{keys.DATALAKE_ENABLED}=true"),
            (table_format == "paimon", f"{keys.DATALAKE_FORMAT}=paimon"),
            (descriptor.has_primary_key, "a primary key"),
            (len(descriptor.partition_keys) == 1, "exactly one partition key"),
        )
        if not is_there
    ]
    if missing:
        raise invalid_config(f"{keys.DATALAKE_HISTORICAL_PARTITION} requires {', '.join(missing)}")


def _check_lake_keys(descriptor: TableDescriptor) -> None:
    """Refuse key columns that the lake format cannot encode; the format applies even while the lake is disabled."""
    lake_format = typed(descriptor.properties, keys.DATALAKE_FORMAT)
    if lake_format is None:
        return
    version = typed(descriptor.properties, keys.KV_FORMAT_VERSION) or 1
    plan = key_plan(
        descriptor.schema.primary_key, descriptor.partition_keys, descriptor.bucket_keys, lake_format, version
    )
    for what, names, encoding in (
        ("bucket key", plan.bucket_columns, plan.bucket_encoding),
        ("primary key", plan.primary_columns, plan.primary_encoding),
    ):
        try:
            if names:
                check_key_types([_type_of(descriptor, name) for name in names], encoding)
        except ValueError as error:
            raise _invalid_table(
                f"{what} {', '.join(names)} cannot be used with {keys.DATALAKE_FORMAT}={lake_format}: {error}; "
                "use other key columns, or another bucket key"
            ) from None
