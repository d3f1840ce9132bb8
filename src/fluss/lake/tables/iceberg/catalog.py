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
from fluss.lake.tables.iceberg.settings import (
    DEFAULT_CATALOG_NAME,
    LAKE_DIRECTORY,
    catalog_properties,
    not_configured,
)

# A SQL catalog has two tables, and each may be made by another program while this one looks.
OPENING_RACES = 4


def open_catalog(properties: Mapping[str, str], directory: Path | None) -> Catalog:
    """The catalog; makes the default one's directory."""
    given = catalog_properties(properties, directory)
    if directory is not None and given.get("uri", "").startswith(f"sqlite:///{directory.absolute()}"):
        (directory.absolute() / LAKE_DIRECTORY).mkdir(parents=True, exist_ok=True)
    name = given.pop("name", DEFAULT_CATALOG_NAME)
    try:
        return _load(name, given)
    except Exception as error:  # whatever the catalog's own client raises: the user must know which setting it is about
        shown = given.get("uri", given.get("type", ""))
        raise not_configured(f"the Iceberg catalog {shown!r} cannot be opened: {error}") from error


def _load(name: str, given: Mapping[str, str]) -> Catalog:
    """pyiceberg looks whether a new SQL catalog has its tables and makes them after that; of two programs that open it
    at the same moment, one then fails over the table of the other, and finds it there when it looks again."""
    for _ in range(OPENING_RACES):
        try:
            return load_catalog(name, **given)
        except Exception as error:  # sqlalchemy's, a library that only SQL catalogs have
            if "already exists" not in str(error):
                raise
    return load_catalog(name, **given)


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
