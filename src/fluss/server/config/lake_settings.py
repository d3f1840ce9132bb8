"""The lake of the cluster, from its configuration and the options that were set at run time.

Three settings: `datalake.format` (which every new table records, because keys and buckets depend on it),
`datalake.enabled` (false: no table may use a lake) and `datalake.<format>.*` (the catalog). Without any of them, tables
that enable the lake get an Iceberg catalog below the server's data directory, and only those tables record a format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.iceberg.settings import catalog_properties
from fluss.model.option_values import enum_parser, parse_boolean
from fluss.model.properties import LAKE_FORMATS
from fluss.server.config.options import is_secret
from fluss.server.config.server_config import ServerConfig

DEFAULT_LAKE_FORMAT = "iceberg"
_OPTION_PREFIX = "datalake."
# The words by which Apache Fluss recognises secrets; `is_secret` has further ones.
_SECRET_WORDS = ("password", "secret", "key")
_PASSWORD_IN_ADDRESS = re.compile(r"(?<=://)([^/@:]*):[^/@]*@")

_parse_lake_format = enum_parser(LAKE_FORMATS)


@dataclass(frozen=True)
class LakeSettings:
    """The lake options of the cluster. New tables record `recorded_format`; those with a lake use `table_format`."""

    recorded_format: str | None
    enabled: bool
    options: Mapping[str, str]
    directory: Path

    @property
    def table_format(self) -> str | None:
        """The format of tables with a lake; None if there is no lake."""
        return (self.recorded_format or DEFAULT_LAKE_FORMAT) if self.enabled else None

    def catalog_options(self, lake_format: str) -> dict[str, str]:
        """Return `datalake.<format>.*` without the prefix, secrets included."""
        prefix = f"{_OPTION_PREFIX}{lake_format}."
        return {key.removeprefix(prefix): value for key, value in self.options.items() if key.startswith(prefix)}

    def shown_to_clients(self, lake_format: str) -> dict[str, str]:
        """Return the catalog options for clients: with defaults, without secrets."""
        options = self.catalog_options(lake_format)
        if lake_format == DEFAULT_LAKE_FORMAT:
            try:
                options = catalog_properties(options, self.directory)
            except FlussError:
                # These options do not make a usable catalog. The operations that open it report that; describing a
                # table does not open it.
                return _without_secrets(options)
        return _without_secrets(options)


def _without_secrets(options: Mapping[str, str]) -> dict[str, str]:
    return {
        key: _PASSWORD_IN_ADDRESS.sub(r"\1@", value)
        for key, value in options.items()
        if not is_secret(key) and not any(word in key.lower() for word in _SECRET_WORDS)
    }


def lake_settings(config: ServerConfig, cluster_config: Mapping[str, str]) -> LakeSettings:
    """Return the configured settings, overridden by those set at run time."""
    format_text = cluster_config.get("datalake.format", config.datalake_format)
    try:
        recorded = _parse_lake_format(format_text) if format_text else None
    except ValueError as error:
        raise FlussError(f"server option 'datalake.format': {error}", ErrorCode.INVALID_CONFIG_EXCEPTION) from None
    enabled = config.datalake_enabled
    if "datalake.enabled" in cluster_config:
        enabled = parse_boolean(cluster_config["datalake.enabled"])
    options = {
        key: value
        for source in (config.values, cluster_config)
        for key, value in source.items()
        if key.startswith(_OPTION_PREFIX)
    }
    return LakeSettings(recorded, enabled is not False, options, config.data_dir)
