"""From the options `datalake.iceberg.*` to a pyiceberg catalog.

Nothing configured: a catalog in SQLite and a warehouse, both under the directory of the server. Anything else is what
pyiceberg takes: `type` (`rest`, `sql`, `glue`, `hive` ...), `uri`, `warehouse`, `s3.endpoint` and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

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
        raise _not_configured(
            f"catalog type {kind!r} is not one that works without a JVM: "
            f"set 'datalake.iceberg.type' to one of {', '.join(CATALOG_TYPES)}, or leave it out for a local one"
        )
    if kind or "uri" in given or "py-catalog-impl" in given:
        return given
    if directory is None:
        raise _not_configured("no catalog is configured: set 'datalake.iceberg.type' and 'datalake.iceberg.uri'")
    lake = directory.absolute() / LAKE_DIRECTORY
    given["type"] = "sql"
    given["uri"] = f"sqlite:///{lake / CATALOG_FILE}?timeout={SQLITE_WAIT_SECONDS}"
    if "warehouse" not in given:
        # Not Path.as_uri(): pyiceberg takes what follows the scheme as the path, without undoing escapes.
        given["warehouse"] = f"file://{lake / WAREHOUSE_DIRECTORY}"
        given.setdefault("py-io-impl", DURABLE_IO)
    return given


def open_catalog(properties: Mapping[str, str], directory: Path | None) -> Catalog:
    """The catalog; makes the default one's directory."""
    given = catalog_properties(properties, directory)
    if directory is not None and given.get("uri", "").startswith(f"sqlite:///{directory.absolute()}"):
        (directory.absolute() / LAKE_DIRECTORY).mkdir(parents=True, exist_ok=True)
    name = given.pop("name", DEFAULT_CATALOG_NAME)
    try:
        return load_catalog(name, **given)
    except Exception as error:  # whatever the catalog's own client raises: the user must know which setting it is about
        shown = given.get("uri", given.get("type", ""))
        raise _not_configured(f"the Iceberg catalog {shown!r} cannot be opened: {error}") from error


@contextmanager
def catalog_errors(doing: str) -> Iterator[None]:
    """Errors of pyiceberg, of the catalog's client and of the warehouse as FlussErrors that say what was being done."""
    try:
        yield
    except FlussError:
        raise
    except CommitStateUnknownException as error:
        message = f"{doing}: it is not known whether this succeeded; load the table again and look: {error}"
        raise FlussError(message, ErrorCode.STORAGE_EXCEPTION) from error
    except CommitFailedException as error:
        message = f"{doing}: another commit was faster; load the table again and decide anew: {error}"
        raise FlussError(message, ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION) from error
    except Exception as error:  # three libraries and the network are behind this; none shares a base class
        raise FlussError(f"{doing}: {type(error).__name__}: {error}", ErrorCode.STORAGE_EXCEPTION) from error


def _not_configured(message: str) -> FlussError:
    return FlussError(message, ErrorCode.LAKE_STORAGE_NOT_CONFIGURED_EXCEPTION)
