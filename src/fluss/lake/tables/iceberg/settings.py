"""The options `datalake.iceberg.*` with the defaults of a lake under the server's directory filled in.

Does not import pyiceberg: servers send these options to clients even if the lake is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fluss.errors import ErrorCode, FlussError

DEFAULT_CATALOG_NAME = "fluss"
LAKE_DIRECTORY = "lake"
CATALOG_FILE = "catalog.sqlite"
WAREHOUSE_DIRECTORY = "warehouse"
# A registered round lets the log expire, so its files must be on disk, which pyiceberg does not ensure.
DURABLE_IO = "fluss.lake.tables.iceberg.durable_io.DurableFileIO"
CATALOG_TYPES = ("rest", "sql", "glue", "hive", "dynamodb", "bigquery", "in-memory")
# How long a process waits for another one to write the SQLite catalog; a write takes milliseconds.
SQLITE_WAIT_SECONDS = 30


def catalog_properties(properties: Mapping[str, str], directory: Path | None) -> dict[str, str]:
    """The properties for pyiceberg, with the defaults of a lake under `directory` filled in."""
    given = dict(properties)
    kind = given.get("type", "")
    if kind and kind not in CATALOG_TYPES:
        raise not_configured(
            f"catalog type {kind!r} needs a JVM or is unknown: "
            f"set 'datalake.iceberg.type' to one of {', '.join(CATALOG_TYPES)}, or leave it out for a local catalog"
        )
    if kind or "uri" in given or "py-catalog-impl" in given:
        return given
    if directory is None:
        raise not_configured("no catalog is configured: set 'datalake.iceberg.type' and 'datalake.iceberg.uri'")
    lake = directory.absolute() / LAKE_DIRECTORY
    given["type"] = "sql"
    given["uri"] = f"sqlite:///{lake / CATALOG_FILE}?timeout={SQLITE_WAIT_SECONDS}"
    if "warehouse" not in given:
        # Not Path.as_uri(): pyiceberg takes what follows the scheme as the path, without undoing escapes.
        given["warehouse"] = f"file://{lake / WAREHOUSE_DIRECTORY}"
        given.setdefault("py-io-impl", DURABLE_IO)
    return given


def not_configured(message: str) -> FlussError:
    return FlussError(message, ErrorCode.LAKE_STORAGE_NOT_CONFIGURED_EXCEPTION)
