"""Databases, tables and partitions from Spark, as Python functions: Python sources have no SQL statements for them.

Every function takes the session first; the cluster is that of `spark.sql.fluss.bootstrap.servers`, or of `options`::

    fluss.spark.create_table(spark, "shop.orders", "id bigint, amount decimal(10, 2)", primary_key=["id"], buckets=4)
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from fluss.errors import FlussError
from fluss.lazy_imports import import_lock
from fluss.spark.sessions.session_cluster import admin_of, table_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from fluss.client.engine.admin import TableInfo
    from fluss.values.databases import DatabaseInfo
    from fluss.values.descriptors import TableDescriptor

Options = Mapping[str, object] | None

# Properties of Apache Fluss's own connector, which sets keys, buckets and comment by them.
PRIMARY_KEY, BUCKET_COUNT, BUCKET_KEY, COMMENT = "primary.key", "bucket.num", "bucket.key", "comment"
SERVER_PREFIX = "table."


# ---- databases ----


def create_database(
    spark: SparkSession,
    name: str,
    *,
    comment: str | None = None,
    properties: Mapping[str, object] | None = None,
    ignore_if_exists: bool = False,
    options: Options = None,
) -> None:
    """Create a database. Code 6 if it exists and `ignore_if_exists` is not set."""
    with import_lock:
        from fluss.values.databases import DatabaseDescriptor

    descriptor = DatabaseDescriptor(comment, _texts(properties))
    with admin_of(spark, options) as admin:
        admin.run(admin.calls.create_database(name, descriptor, ignore_if_exists))


def alter_database(
    spark: SparkSession,
    name: str,
    *,
    set_properties: Mapping[str, object] | None = None,
    unset_properties: Iterable[str] = (),
    comment: str | None = None,
    options: Options = None,
) -> None:
    """Change properties and comment of a database. Code 2 on servers that cannot (Apache Fluss 0.9)."""
    with import_lock:
        from fluss.client.engine.admin import REMOVE_VALUE, SET_VALUE, config_changes

    changes = config_changes(SET_VALUE, _texts(set_properties)) + config_changes(REMOVE_VALUE, list(unset_properties))
    if not changes and comment is None:
        raise FlussError("nothing to change: give set_properties, unset_properties or comment")
    with admin_of(spark, options) as admin:
        admin.run(admin.calls.alter_database(name, changes, comment, False))


def drop_database(
    spark: SparkSession,
    name: str,
    *,
    cascade: bool = False,
    ignore_if_not_exists: bool = False,
    options: Options = None,
) -> None:
    """Drop a database; with `cascade` also its tables, else code 5 if it is not empty."""
    with admin_of(spark, options) as admin:
        admin.run(admin.calls.drop_database(name, ignore_if_not_exists, cascade))


def list_databases(spark: SparkSession, *, options: Options = None) -> list[str]:
    """Names of all databases, sorted."""
    with admin_of(spark, options) as admin:
        return sorted(admin.run(admin.calls.list_databases()))


def database_info(spark: SparkSession, name: str, *, options: Options = None) -> DatabaseInfo:
    """Comment, properties and times of a database. Code 4 if it does not exist."""
    with admin_of(spark, options) as admin:
        return admin.run(admin.calls.get_database_info(name))


# ---- tables ----


def create_table(
    spark: SparkSession,
    table: str,
    schema: StructType | DataFrame | str,
    *,
    primary_key: Sequence[str] = (),
    buckets: int | None = None,
    bucket_keys: Sequence[str] = (),
    partitioned_by: Sequence[str] = (),
    properties: Mapping[str, object] | None = None,
    comment: str | None = None,
    ignore_if_exists: bool = False,
    options: Options = None,
) -> None:
    """Create a table from a Spark schema, the schema of a DataFrame, or a string such as `id bigint, v double`.

    With `primary_key` it is a primary-key table, else a log table. `properties` that start with `table.` are for the
    server, others are the user's own; `primary.key`, `bucket.num`, `bucket.key` and `comment` are accepted there too.
    Column comments are kept. Code 8 if the table exists and that is not ignored, 4 if its database does not exist.
    """
    descriptor = _descriptor(schema, primary_key, buckets, bucket_keys, partitioned_by, _texts(properties), comment)
    with admin_of(spark, options) as admin:
        admin.run(admin.calls.create_table(table_path(table), descriptor, ignore_if_exists))


def _descriptor(
    schema: StructType | DataFrame | str,
    primary_key: Sequence[str],
    buckets: int | None,
    bucket_keys: Sequence[str],
    partitioned_by: Sequence[str],
    properties: dict[str, str],
    comment: str | None,
) -> TableDescriptor:
    with import_lock:
        from fluss.spark.convert.types import from_spark_schema
        from fluss.values.descriptors import TableDescriptor
        from fluss.values.schema import Schema

    for name, columns in (
        ("primary_key", primary_key),
        ("bucket_keys", bucket_keys),
        ("partitioned_by", partitioned_by),
    ):
        if isinstance(columns, str):
            raise FlussError(f"{name} must be a list of columns, got the string {columns!r}: write [{columns!r}]")
    primary_key = _argument_or_property(PRIMARY_KEY, list(primary_key), _split(properties.pop(PRIMARY_KEY, "")))
    bucket_keys = _argument_or_property(BUCKET_KEY, list(bucket_keys), _split(properties.pop(BUCKET_KEY, "")))
    count_text = properties.pop(BUCKET_COUNT, None)
    if count_text is not None and not count_text.isdecimal():
        raise FlussError(f"{BUCKET_COUNT} must be a whole number, got {count_text!r}")
    buckets = _argument_or_property(BUCKET_COUNT, buckets, None if count_text is None else int(count_text))
    comment = _argument_or_property(COMMENT, comment, properties.pop(COMMENT, None))
    builder = Schema.builder()
    for column in from_spark_schema(as_struct(schema)):
        builder.column(column.name, column.data_type, column.comment)
    return TableDescriptor(
        builder.primary_key(primary_key).build(),
        partition_keys=list(partitioned_by),
        bucket_count=buckets,
        bucket_keys=bucket_keys,
        comment=comment,
        properties={key: value for key, value in properties.items() if key.startswith(SERVER_PREFIX)},
        custom_properties={key: value for key, value in properties.items() if not key.startswith(SERVER_PREFIX)},
    )


def _argument_or_property(name: str, argument: object, from_properties: object) -> Any:
    if argument and from_properties and argument != from_properties:
        raise FlussError(
            f"property {name} is {from_properties!r}, but the argument is {argument!r}: give only one of them"
        )
    return argument or from_properties


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def as_struct(schema: StructType | DataFrame | str) -> StructType:
    """Convert a schema from any of the accepted forms to a `StructType`."""
    from pyspark.sql.types import StructType

    if isinstance(schema, str):
        schema = cast(StructType, StructType.fromDDL(schema))
    found = getattr(schema, "schema", schema)
    if not isinstance(found, StructType):
        raise FlussError(f"a schema must be a StructType, a DataFrame or a string such as 'id bigint', got {schema!r}")
    return found


def alter_table(
    spark: SparkSession,
    table: str,
    *,
    add_columns: StructType | str | None = None,
    set_properties: Mapping[str, object] | None = None,
    unset_properties: Collection[str] = (),
    options: Options = None,
) -> None:
    """Add nullable columns at the end, or change properties.

    Servers make these changes one at a time: given both, the columns are added first. Most `table.*` properties are
    fixed when a table is created; the server's error names them.
    """
    with import_lock:
        from fluss.client.engine.admin import REMOVE_VALUE, SET_VALUE, config_changes
        from fluss.spark.convert.types import from_spark_schema

    fixed = sorted({*(set_properties or {}), *unset_properties} & {PRIMARY_KEY, BUCKET_COUNT, BUCKET_KEY, COMMENT})
    if fixed:
        raise FlussError(f"{', '.join(fixed)} of a table cannot be changed after it is created: leave it out")
    columns = () if add_columns is None else from_spark_schema(as_struct(add_columns))
    changes = config_changes(SET_VALUE, _texts(set_properties)) + config_changes(REMOVE_VALUE, list(unset_properties))
    if not columns and not changes:
        raise FlussError("nothing to change: give add_columns, set_properties or unset_properties")
    path = table_path(table)
    with admin_of(spark, options) as admin:
        if columns:
            admin.run(admin.calls.alter_table(path, [], columns, False))
        if changes:
            admin.run(admin.calls.alter_table(path, changes, [], False))


def drop_table(spark: SparkSession, table: str, *, ignore_if_not_exists: bool = False, options: Options = None) -> None:
    """Drop a table and its data. Code 7 if it does not exist and `ignore_if_not_exists` is not set."""
    with admin_of(spark, options) as admin:
        admin.run(admin.calls.drop_table(table_path(table), ignore_if_not_exists))


def list_tables(
    spark: SparkSession, database: str = "fluss", like: str | None = None, *, options: Options = None
) -> list[str]:
    """Names of the tables of a database, sorted; `like` is a pattern such as `orders_*`."""
    with admin_of(spark, options) as admin:
        names = sorted(admin.run(admin.calls.list_tables(database)))
    return names if like is None else fnmatch.filter(names, like)


def table_exists(spark: SparkSession, table: str, *, options: Options = None) -> bool:
    """True if the servers know a table of this name."""
    with admin_of(spark, options) as admin:
        return admin.run(admin.calls.table_exists(table_path(table)))


def table_info(spark: SparkSession, table: str, *, options: Options = None) -> TableInfo:
    """The description of a table by the servers: keys, buckets, properties, comment. Code 7 if it does not exist."""
    with admin_of(spark, options) as admin:
        return admin.run(admin.calls.get_table_info(table_path(table)))


# ---- partitions ----


def create_partition(
    spark: SparkSession,
    table: str,
    spec: Mapping[str, object],
    *,
    ignore_if_exists: bool = False,
    options: Options = None,
) -> None:
    """Create a partition: `{"day": datetime.date(2026, 8, 1)}`. A value has the type of its column, or is a string."""
    with admin_of(spark, options) as admin:
        info = admin.run(admin.calls.get_table_info(table_path(table)))
        admin.run(admin.calls.create_partition(table_path(table), partition_texts(info, spec), ignore_if_exists))


def drop_partition(
    spark: SparkSession,
    table: str,
    spec: Mapping[str, object],
    *,
    ignore_if_not_exists: bool = False,
    options: Options = None,
) -> None:
    """Drop a partition and its data; all partition columns need a value."""
    with admin_of(spark, options) as admin:
        info = admin.run(admin.calls.get_table_info(table_path(table)))
        texts = partition_texts(info, spec)
        missing = [key for key in info.partition_keys if key not in texts]
        if missing:
            raise FlussError(f"dropping a partition of {table} needs all partition values: add {', '.join(missing)}")
        admin.run(admin.calls.drop_partition(table_path(table), texts, ignore_if_not_exists))


def list_partitions(
    spark: SparkSession, table: str, spec: Mapping[str, object] | None = None, *, options: Options = None
) -> list[dict[str, str]]:
    """The partitions of a table, each as strings by column; `spec` selects those with the given values."""
    with admin_of(spark, options) as admin:
        info = admin.run(admin.calls.get_table_info(table_path(table)))
        found = admin.run(admin.calls.list_partition_infos(table_path(table), partition_texts(info, spec or {})))
    return [entry.partition_spec.get_spec_map() for entry in found]


def partition_texts(info: TableInfo, spec: Mapping[str, object]) -> dict[str, str]:
    """The strings of partition values, as the server names partitions."""
    import pyarrow as pa

    with import_lock:
        from fluss.codec.arrow.types import to_arrow_type
        from fluss.codec.keys.partition_names import partition_names

    types = {column.name: column.data_type for column in info.schema.columns}
    keys = info.partition_keys
    texts = {}
    for key, value in spec.items():
        if key not in keys:
            raise FlussError(
                f"unknown partition column {key!r} of {info.table_path}; it has {', '.join(keys) or 'none'}"
            )
        if isinstance(value, str):
            texts[key] = value
            continue
        try:
            column = pa.array([value], to_arrow_type(types[key]))
            if column[0].as_py() != value:  # Arrow converts 1.5 to 1
                raise ValueError(f"it would become {column[0].as_py()!r}")
            texts[key] = partition_names([column], [types[key]])[0].as_py()
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise FlussError(f"partition column {key!r} is {types[key]}, got {value!r}: {error}") from None
    return texts


def _texts(values: Mapping[str, object] | None) -> dict[str, str]:
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (values or {}).items()}
