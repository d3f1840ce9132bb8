"""Which lake the cluster has, from its configuration and the options that were set at run time.

Three settings: `datalake.format` (which every new table records, because keys and buckets depend on it),
`datalake.enabled` (false: no table may use a lake) and `datalake.<format>.*` (the catalog). With none of them there is
still a lake, an Iceberg catalog under the server's data directory, for tables that ask for one; tables that do not ask
record no format then.
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
# The words of Apache Fluss; `is_secret` knows more.
_SECRET_WORDS = ("password", "secret", "key")
_PASSWORD_IN_ADDRESS = re.compile(r"(?<=://)([^/@:]*):[^/@]*@")

_parse_lake_format = enum_parser(LAKE_FORMATS)


@dataclass(frozen=True)
class LakeSettings:
    """`recorded_format` is what new tables record; `table_format` the lake that tables get which ask for one."""

    recorded_format: str | None
    enabled: bool
    options: Mapping[str, str]
    directory: Path

    @property
    def table_format(self) -> str | None:
        """The format of tables with a lake; None while there is no lake."""
        return (self.recorded_format or DEFAULT_LAKE_FORMAT) if self.enabled else None

    def catalog_options(self, lake_format: str) -> dict[str, str]:
        """`datalake.<format>.*` without the prefix, secrets included."""
        prefix = f"{_OPTION_PREFIX}{lake_format}."
        return {key.removeprefix(prefix): value for key, value in self.options.items() if key.startswith(prefix)}

    def shown_to_clients(self, lake_format: str) -> dict[str, str]:
        """How clients reach the catalog: defaults filled in, secrets left out."""
        options = self.catalog_options(lake_format)
        if lake_format == DEFAULT_LAKE_FORMAT:
            try:
                options = catalog_properties(options, self.directory)
            except FlussError:
                # A catalog that cannot be used: whoever tries gets told; a description of the table is no such try.
                return _without_secrets(options)
        return _without_secrets(options)


def _without_secrets(options: Mapping[str, str]) -> dict[str, str]:
    return {
        key: _PASSWORD_IN_ADDRESS.sub(r"\1@", value)
        for key, value in options.items()
        if not is_secret(key) and not any(word in key.lower() for word in _SECRET_WORDS)
    }


def lake_settings(config: ServerConfig, cluster_config: Mapping[str, str]) -> LakeSettings:
    """The configured options with those on top that were set at run time."""
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
