"""The layout of a lake table: columns, partitions, sort order, properties. docs/formats/lake.md has an example.

The user's columns come first, under their names and in their order; three of ours follow. Partitions are the table's
partition keys and then the bucket: `bucket(n, key)` where Iceberg's hash of the key is the one that Fluss used to
choose the bucket, so that engines prune by key, otherwise the column `__bucket` itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform
from pyiceberg.types import IntegerType, LongType, NestedField, TimestamptzType

from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.iceberg.types import LAKE_TIME_PRECISION, to_iceberg_type
from fluss.lake.tables.interface.format import (
    BUCKET_COLUMN,
    OFFSET_COLUMN,
    SYSTEM_COLUMNS,
    TIMESTAMP_COLUMN,
    LakeTableSpec,
)
from fluss.model.properties import DATALAKE_FORMAT
from fluss.model.schema import Column
from fluss.model.types import DataType

ICEBERG_PROPERTY_PREFIX = "iceberg."
FLUSS_PROPERTY_PREFIX = "fluss."
FIRST_PARTITION_FIELD_ID = 1000

# Properties that define our layout; a user's `iceberg.*` property cannot change them.
FIXED_PROPERTIES: Mapping[str, str] = {
    "format-version": "2",
    "write.format.default": "parquet",
    # A commit that meets another one must fail, so that the tiering service checks the offsets again.
    "commit.retry.num-retries": "0",
}
# How other engines should change rows; for primary-key tables only.
KEYED_PROPERTIES: Mapping[str, str] = {
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}
# Defaults that a user may override.
DEFAULT_PROPERTIES: Mapping[str, str] = {
    "write.target-file-size-bytes": str(128 << 20),
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
}

# Types whose Iceberg hash is the one that chose the bucket. FLOAT and DOUBLE keys exist in Fluss, but not in Iceberg.
_HASHED_BY_ICEBERG = frozenset(
    (
        "INTEGER", "BIGINT", "DATE", "TIME_WITHOUT_TIME_ZONE", "TIMESTAMP_WITHOUT_TIME_ZONE", "DECIMAL",
        "CHAR", "STRING", "BINARY", "BYTES",
    )
)  # fmt: skip
# Types whose partition values are identical in the name of a Fluss partition and in Iceberg.
PARTITION_ROOTS = frozenset(("STRING", "CHAR", "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DATE"))
_FLOATS = frozenset(("FLOAT", "DOUBLE"))
_NESTED = frozenset(("ARRAY", "MAP", "ROW"))


def _invalid(message: str) -> FlussError:
    return FlussError(message, ErrorCode.INVALID_TABLE_EXCEPTION)


def _ids() -> Callable[[], int]:
    counter = itertools.count(1)
    return lambda: next(counter)


def lake_schema(spec: LakeTableSpec) -> IcebergSchema:
    """User columns, then `__bucket`, `__offset`, `__timestamp`; the primary key as identifier fields."""
    schema = spec.descriptor.schema
    next_id = _ids()
    fields = [_user_field(column, next_id) for column in schema.columns]
    fields += [
        NestedField(next_id(), BUCKET_COLUMN, IntegerType(), True, doc="bucket of the row"),
        NestedField(next_id(), OFFSET_COLUMN, LongType(), True, doc="offset of the row in the log of its bucket"),
        NestedField(next_id(), TIMESTAMP_COLUMN, TimestamptzType(), True, doc="when the row was committed to the log"),
    ]
    for name in schema.primary_key:
        _check_key(name, schema.columns[schema.position(name)].data_type)
    identifiers = [field.field_id for field in fields if field.name in schema.primary_key]
    return IcebergSchema(*fields, identifier_field_ids=identifiers)


def _user_field(column: Column, next_id: Callable[[], int]) -> NestedField:
    if column.name in SYSTEM_COLUMNS:
        raise _invalid(f"column {column.name!r} has a name that is reserved in lake tables; rename it")
    own = next_id()
    required = not column.data_type.nullable
    return NestedField(own, column.name, to_iceberg_type(column.data_type, next_id), required, doc=column.comment)


def _check_key(name: str, data_type: DataType) -> None:
    """Raise unless different keys differ in the lake too, and Iceberg accepts the type as an identifier."""
    if data_type.root in _FLOATS or data_type.root in _NESTED:
        raise _invalid(
            f"primary-key column {name!r} is {data_type}, which cannot identify rows in Iceberg: use another type"
        )
    if getattr(data_type, "precision", 0) > LAKE_TIME_PRECISION and data_type.root.startswith("TIME"):
        raise _invalid(
            f"primary-key column {name!r} is {data_type}, but times in the lake have {LAKE_TIME_PRECISION} digits: "
            "different keys would become the same, so use a type with fewer digits"
        )


def added_field_type(column: Column) -> NestedField:
    """The field of a column that is added later, without an id yet."""
    if not column.data_type.nullable:
        raise FlussError(
            f"column {column.name!r} is NOT NULL, but rows already in the lake have no value for it: make it nullable",
            ErrorCode.INVALID_ALTER_TABLE_EXCEPTION,
        )
    return _user_field(column, _ids())


def partition_spec(spec: LakeTableSpec, schema: IcebergSchema) -> PartitionSpec:
    """The partition spec: the partition keys as they are, then the bucket."""
    descriptor = spec.descriptor
    fields: list[tuple[str, Transform[Any, Any], str]] = []
    for name in descriptor.partition_keys:
        data_type = descriptor.schema.columns[descriptor.schema.position(name)].data_type
        if data_type.root not in PARTITION_ROOTS:
            raise _invalid(
                f"partition key {name!r} is {data_type}; in the lake it must be a string, whole number, boolean or date"
            )
        fields.append((name, IdentityTransform(), name))
    key = _hashed_key(spec)
    if key is None:
        fields.append((BUCKET_COLUMN, IdentityTransform(), BUCKET_COLUMN))
    else:
        fields.append((key, BucketTransform(descriptor.bucket_count or 1), f"{key}_bucket"))
    return PartitionSpec(
        *[
            PartitionField(schema.find_field(source).field_id, FIRST_PARTITION_FIELD_ID + index, transform, name)
            for index, (source, transform, name) in enumerate(fields)
        ]
    )


def _hashed_key(spec: LakeTableSpec) -> str | None:
    """The bucket key, if Iceberg's bucket function returns the bucket in which Fluss stores the row; else None."""
    descriptor = spec.descriptor
    if descriptor.properties.get(DATALAKE_FORMAT, "").lower() != "iceberg":
        return None  # the table was created for another hash
    if len(descriptor.bucket_keys) > 1:
        raise _invalid(
            f"an Iceberg lake table has at most one bucket key, got {', '.join(descriptor.bucket_keys)}: "
            "set the bucket key to one column of the primary key"
        )
    if not descriptor.bucket_keys:
        return None
    data_type = descriptor.schema.columns[descriptor.schema.position(descriptor.bucket_keys[0])].data_type
    return descriptor.bucket_keys[0] if data_type.root in _HASHED_BY_ICEBERG else None


def sort_order(schema: IcebergSchema) -> SortOrder:
    """Sort by `__offset`: files of a log table are written in that order."""
    source = schema.find_field(OFFSET_COLUMN).field_id
    return SortOrder(SortField(source, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST))


def fixed_properties(spec: LakeTableSpec) -> dict[str, str]:
    """The properties that define our layout."""
    return {**FIXED_PROPERTIES, **(KEYED_PROPERTIES if spec.descriptor.has_primary_key else {})}


def user_properties(spec: LakeTableSpec) -> dict[str, str]:
    """The user's properties for Iceberg: `iceberg.*`, without that prefix."""
    given = {**spec.descriptor.properties, **spec.descriptor.custom_properties}
    wanted = {
        key.removeprefix(ICEBERG_PROPERTY_PREFIX): value
        for key, value in given.items()
        if key.startswith(ICEBERG_PROPERTY_PREFIX)
    }
    for key, value in {**FIXED_PROPERTIES, **KEYED_PROPERTIES}.items():
        if wanted.get(key, value) != value:
            raise _invalid(
                f"property {ICEBERG_PROPERTY_PREFIX + key!r} cannot be {wanted[key]!r}: a tiered table needs {value!r}"
            )
    return wanted


def lake_user_properties(spec: LakeTableSpec) -> dict[str, str]:
    """The properties of an existing lake table that a user can change: the user's values, and defaults for the rest."""
    return {**DEFAULT_PROPERTIES, **user_properties(spec)}


def lake_properties(spec: LakeTableSpec) -> dict[str, str]:
    """`iceberg.x` becomes `x`, everything else `fluss.x`; properties that define our layout cannot be overridden."""
    given = {**spec.descriptor.properties, **spec.descriptor.custom_properties}
    kept = {
        FLUSS_PROPERTY_PREFIX + key: value
        for key, value in given.items()
        if not key.startswith(ICEBERG_PROPERTY_PREFIX)
    }
    return {**kept, **lake_user_properties(spec), **fixed_properties(spec)}
