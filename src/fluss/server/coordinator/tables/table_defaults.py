"""Fills in the defaults of a table descriptor: options of the cluster, or else fixed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fluss.errors import ErrorCode, FlussError
from fluss.model import properties as keys
from fluss.model.descriptor import TableDescriptor
from fluss.model.properties import property_value
from fluss.server.config.lake_settings import LakeSettings, lake_settings
from fluss.server.config.server_config import ServerConfig

NEWEST_KV_FORMAT_VERSION = 2


@dataclass(frozen=True)
class ClusterDefaults:
    """The options of the cluster that tables inherit, including run-time changes."""

    bucket_number: int
    replication_factor: int
    lake: LakeSettings


def cluster_defaults(config: ServerConfig, cluster_config: Mapping[str, str]) -> ClusterDefaults:
    """Return the configured options, overridden by those set at run time."""
    return ClusterDefaults(
        bucket_number=config.default_bucket_number,
        replication_factor=config.default_replication_factor,
        lake=lake_settings(config, cluster_config),
    )


def with_defaults(descriptor: TableDescriptor, defaults: ClusterDefaults) -> TableDescriptor:
    """Return the descriptor as it is stored and shown; absent keys have fixed defaults."""
    properties = dict(descriptor.properties)
    properties.setdefault(keys.REPLICATION_FACTOR, str(defaults.replication_factor))
    if len(descriptor.partition_keys) > 1 and typed(properties, keys.AUTO_PARTITION_ENABLED):
        properties.setdefault(keys.AUTO_PARTITION_NUM_PRECREATE, "0")
    lake_format = defaults.lake.recorded_format
    if lake_format is None and typed(properties, keys.DATALAKE_ENABLED):
        lake_format = defaults.lake.table_format
    if lake_format is not None:
        properties.setdefault(keys.DATALAKE_FORMAT, lake_format)
    if descriptor.has_primary_key:
        if keys.MERGE_ENGINE in properties:
            properties.setdefault(keys.DELETE_BEHAVIOR, "IGNORE")
        # The newest Apache Fluss also sets the standby-replica option here; one machine has no standby, and the
        # released version (0.9.1) does not know the key.
        properties.setdefault(keys.KV_FORMAT_VERSION, str(NEWEST_KV_FORMAT_VERSION))
    _check_lake_and_kv_version(properties, defaults)
    bucket_count = defaults.bucket_number if descriptor.bucket_count is None else descriptor.bucket_count
    return replace(descriptor, bucket_count=bucket_count, properties=properties)


def _check_lake_and_kv_version(properties: Mapping[str, str], defaults: ClusterDefaults) -> None:
    if typed(properties, keys.DATALAKE_ENABLED) and not defaults.lake.enabled:
        raise FlussError(
            f"{keys.DATALAKE_ENABLED}=true requires a lake, but the cluster has none; set the server option "
            "'datalake.enabled' to true",
            ErrorCode.INVALID_TABLE_EXCEPTION,
        )
    version = typed(properties, keys.KV_FORMAT_VERSION)
    if version is not None and not 1 <= version <= NEWEST_KV_FORMAT_VERSION:
        raise invalid_config(f"{keys.KV_FORMAT_VERSION} must be from 1 to {NEWEST_KV_FORMAT_VERSION}, got {version}")


def typed(properties: Mapping[str, str], key: str) -> Any:
    """Return the typed value of a property; code 39 if it cannot be parsed."""
    try:
        return property_value(properties, key)
    except ValueError as error:
        raise invalid_config(str(error)) from None


def invalid_config(message: str) -> FlussError:
    return FlussError(message, ErrorCode.INVALID_CONFIG_EXCEPTION)
