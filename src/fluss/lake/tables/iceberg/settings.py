"""The options `datalake.iceberg.*` with the defaults of a lake under the server's directory filled in.

No import of pyiceberg: servers show these to clients, also where nobody uses the lake.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fluss.errors import ErrorCode, FlussError

DEFAULT_CATALOG_NAME = "fluss"
LAKE_DIRECTORY = "lake"
CATALOG_FILE = "catalog.sqlite"
WAREHOUSE_DIRECTORY = "warehouse"
# A round that is registered lets the log go: its files must be on disk, which pyiceberg itself does not see to.
DURABLE_IO = "fluss.lake.tables.iceberg.durable_io.DurableFileIO"
CATALOG_TYPES = ("rest", "sql", "glue", "hive", "dynamodb", "bigquery", "in-memory")
# How long a process waits for another one that writes the SQLite catalog; a write takes milliseconds.
SQLITE_WAIT_SECONDS = 30


def catalog_properties(properties: Mapping[str, str], directory: Path | None) -> dict[str, str]:
    """The properties for pyiceberg, with the defaults of a lake under `directory` filled in."""
    given = dict(properties)
    kind = given.get("type", "")
    if kind and kind not in CATALOG_TYPES:
        raise not_configured(
            f"catalog type {kind!r} is not one that works without a JVM: "
            f"set 'datalake.iceberg.type' to one of {', '.join(CATALOG_TYPES)}, or leave it out for a local one"
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
