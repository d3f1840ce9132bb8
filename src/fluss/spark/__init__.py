"""Spark on top of the client: `format("fluss")`, and helpers around it.

    import fluss.spark

    spark = fluss.spark.session()
    spark.read.format("fluss").option("bootstrap.servers", "localhost:9123").load("shop.orders").show()

Spark imports `pyspark_fluss`, and with it this package, in every session, so heavy modules are loaded at first use.
Imported by programs, `pyspark_fluss` and `cli`. Start with `source`, the class that Spark calls.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from fluss.lazy_imports import import_lock as _import_lock
from fluss.spark.sessions.session import session

# Imported eagerly, and cheap: a later import of a module of the same name would hide the function.
from fluss.spark.sql.temporary_views import attach

if _TYPE_CHECKING:
    import fluss.spark.sql.catalog as catalog
    from fluss.spark.lake.maintenance import maintain
    from fluss.spark.lake.tiering import tier
    from fluss.spark.read.count import count
    from fluss.spark.sessions.session_cluster import table_options
    from fluss.spark.source import FlussDataSource
    from fluss.spark.sql.ddl import (
        alter_database,
        alter_table,
        create_database,
        create_partition,
        create_table,
        database_info,
        drop_database,
        drop_partition,
        drop_table,
        list_databases,
        list_partitions,
        list_tables,
        table_exists,
        table_info,
    )
    from fluss.spark.sql.lookup_join import lookup_join
    from fluss.spark.sql.procedures import get_cluster_configs, reset_cluster_configs, server_nodes, set_cluster_configs
    from fluss.spark.sql.temporary_views import Attached
    from fluss.spark.write.foreach_batch import foreach_batch

__all__ = [
    "Attached",
    "FlussDataSource",
    "alter_database",
    "alter_table",
    "attach",
    "catalog",
    "count",
    "create_database",
    "create_partition",
    "create_table",
    "database_info",
    "drop_database",
    "drop_partition",
    "drop_table",
    "foreach_batch",
    "get_cluster_configs",
    "list_databases",
    "list_partitions",
    "list_tables",
    "lookup_join",
    "maintain",
    "reset_cluster_configs",
    "server_nodes",
    "session",
    "set_cluster_configs",
    "table_exists",
    "table_info",
    "table_options",
    "tier",
]

_HOMES = {
    "fluss.spark.sql.temporary_views": ("Attached",),
    "fluss.spark.sessions.session_cluster": ("table_options",),
    "fluss.spark.sql.ddl": (
        "alter_database",
        "alter_table",
        "create_database",
        "create_partition",
        "create_table",
        "database_info",
        "drop_database",
        "drop_partition",
        "drop_table",
        "list_databases",
        "list_partitions",
        "list_tables",
        "table_exists",
        "table_info",
    ),
    "fluss.spark.sql.lookup_join": ("lookup_join",),
    "fluss.spark.lake.maintenance": ("maintain",),
    "fluss.spark.sql.procedures": (
        "get_cluster_configs",
        "reset_cluster_configs",
        "server_nodes",
        "set_cluster_configs",
    ),
    "fluss.spark.read.count": ("count",),
    "fluss.spark.source": ("FlussDataSource",),
    "fluss.spark.lake.tiering": ("tier",),
    "fluss.spark.write.foreach_batch": ("foreach_batch",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name == "catalog":
        with _import_lock:
            return _import_module("fluss.spark.sql.catalog")
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'fluss.spark' has no attribute {name!r}")
    with _import_lock:
        value = getattr(_import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
