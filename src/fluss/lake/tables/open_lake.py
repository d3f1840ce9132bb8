"""Opens the lake of a table from the properties in GET_TABLE_INFO.

For a table with a lake, the server returns how to reach it as `table.datalake.<format>.<key>` among the properties.
Secrets (keys, passwords, tokens) are not among the properties: callers that need them pass them here, or keep them
where the catalog's client looks for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.interface.format import LakeFormat
from fluss.lazy_imports import import_lock
from fluss.model.properties import DATALAKE_ENABLED, DATALAKE_FORMAT, DATALAKE_PROPERTY_PREFIX, property_value

_SQLITE_FILE_PREFIX = "sqlite:///"


def lake_properties_of(properties: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return format and catalog properties of a table with a lake; code 40 for a table without.

    >>> lake_properties_of({"table.datalake.format": "iceberg", "table.datalake.iceberg.uri": "http://lake"})
    ('iceberg', {'uri': 'http://lake'})
    """
    lake_format = property_value(properties, DATALAKE_FORMAT)
    if lake_format is None:
        raise FlussError(
            f"the table has no lake; enable one with {DATALAKE_ENABLED}=true",
            ErrorCode.LAKE_STORAGE_NOT_CONFIGURED_EXCEPTION,
        )
    prefix = f"{DATALAKE_PROPERTY_PREFIX}{lake_format}."
    shown = {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}
    return str(lake_format), shown


def open_lake(lake_format: str, properties: Mapping[str, str], directory: Path | None = None) -> LakeFormat:
    """Open the catalog that the options `datalake.<format>.*` describe (given without that prefix).

    `directory`, the server's data directory, is the place of a lake without any options.
    """
    if lake_format.lower() != "iceberg":
        raise FlussError(
            f"unsupported lake format {lake_format!r}: set 'datalake.format' to 'iceberg'",
            ErrorCode.INVALID_CONFIG_EXCEPTION,
        )
    try:
        with import_lock:
            from fluss.lake.tables.iceberg.catalog import open_catalog
            from fluss.lake.tables.iceberg.tables import IcebergFormat
    except ModuleNotFoundError as error:
        raise FlussError(
            f"Iceberg tables need the package {error.name!r}: pip install 'flusspy[lake]'",
            ErrorCode.LAKE_STORAGE_NOT_CONFIGURED_EXCEPTION,
        ) from error
    return IcebergFormat(open_catalog(properties, directory))


def lake_of(properties: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> LakeFormat:
    """Open the catalog of a table's lake.

    Args:
        properties: the properties of the table's `TableInfo`.
        overrides: catalog properties, without any prefix, that win over those of the server: secrets, or an address
            that differs on this machine (`{"s3.secret-access-key": ...}`).

    ```python
    lake = lake_of(table.get_table_info().properties)
    lake.load(TablePath("shop", "orders")).plan_files()
    ```
    """
    lake_format, shown = lake_properties_of(properties)
    catalog = {**shown, **(overrides or {})}
    _check_reachable(catalog.get("uri", ""))
    return open_lake(lake_format, catalog)


def _check_reachable(uri: str) -> None:
    """Raise if a SQLite catalog does not exist: SQLite would create an empty one, and all tables would seem missing."""
    path = Path(uri.removeprefix(_SQLITE_FILE_PREFIX).partition("?")[0])
    if uri.startswith(_SQLITE_FILE_PREFIX) and not path.is_file():
        raise FlussError(
            f"the catalog of the lake, {path}, is not on this machine. Run on that of the server, or give the "
            "server a catalog that other machines can reach ('datalake.iceberg.type: rest' and 'datalake.iceberg.uri')",
            ErrorCode.LAKE_STORAGE_NOT_CONFIGURED_EXCEPTION,
        )
