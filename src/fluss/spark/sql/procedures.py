"""Options and servers of the cluster, as Python functions; other engines have SQL procedures for this.

The session is the first argument, as in `fluss.spark.sql.ddl`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from fluss.lazy_imports import import_lock
from fluss.spark.sessions.session_cluster import admin_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fluss.client.engine.admin import ConfigEntry
    from fluss.values.basic import ServerNode

Options = Mapping[str, object] | None


def get_cluster_configs(
    spark: SparkSession, keys: Iterable[str] | None = None, *, options: Options = None
) -> list[ConfigEntry]:
    """Options of the cluster: name, value (None if secret) and source of the value; all options without `keys`."""
    wanted = None if keys is None else set(keys)
    with admin_of(spark, options) as admin:
        entries = admin.run(admin.calls.describe_cluster_configs())
    return [entry for entry in entries if wanted is None or entry.name in wanted]


def set_cluster_configs(spark: SparkSession, values: Mapping[str, object], *, options: Options = None) -> None:
    """Change options of the running cluster; the server refuses those that need a restart."""
    with import_lock:
        from fluss.client.engine.admin import SET_VALUE, config_changes

    with admin_of(spark, options) as admin:
        admin.run(admin.calls.alter_cluster_configs(config_changes(SET_VALUE, values)))


def reset_cluster_configs(spark: SparkSession, keys: Iterable[str], *, options: Options = None) -> None:
    """Reset options of the running cluster to the values of its configuration file."""
    with import_lock:
        from fluss.client.engine.admin import REMOVE_VALUE, config_changes

    with admin_of(spark, options) as admin:
        admin.run(admin.calls.alter_cluster_configs(config_changes(REMOVE_VALUE, list(keys))))


def server_nodes(spark: SparkSession, *, options: Options = None) -> list[ServerNode]:
    """The live servers of the cluster, the coordinator first."""
    with admin_of(spark, options) as admin:
        return admin.run(admin.calls.get_server_nodes())
