"""Opens a pyiceberg catalog from the options `datalake.iceberg.*`.

Without options: a catalog in SQLite and a warehouse, both in the directory of the server. Otherwise the options are
those of pyiceberg: `type` (`rest`, `sql`, `glue`, `hive` ...), `uri`, `warehouse`, `s3.endpoint` and so on.
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

# A SQL catalog has two tables, and another program may create each of them while this one checks.
OPENING_RACES = 4


def open_catalog(properties: Mapping[str, str], directory: Path | None) -> Catalog:
    """Open the catalog; creates the directory of the default one."""
    given = catalog_properties(properties, directory)
    if directory is not None and given.get("uri", "").startswith(f"sqlite:///{directory.absolute()}"):
        (directory.absolute() / LAKE_DIRECTORY).mkdir(parents=True, exist_ok=True)
    name = given.pop("name", DEFAULT_CATALOG_NAME)
    try:
        return _load(name, given)
    except Exception as error:  # from the catalog's own client: the user must know which setting caused it
        shown = given.get("uri", given.get("type", ""))
        raise not_configured(f"the Iceberg catalog {shown!r} cannot be opened: {error}") from error


def _load(name: str, given: Mapping[str, str]) -> Catalog:
    """Load a catalog, again if another program opens the same SQL catalog at this moment.

    pyiceberg checks whether a SQL catalog has its tables, and then creates them. If two programs do so at the same
    time, one of them fails because a table already exists, and finds the tables in the next attempt.
    """
    for _ in range(OPENING_RACES):
        try:
            return load_catalog(name, **given)
        except Exception as error:  # of sqlalchemy, a library that only SQL catalogs have
            if "already exists" not in str(error):
                raise
    return load_catalog(name, **given)


@contextmanager
def catalog_errors(doing: str) -> Iterator[None]:
    """Turn errors of pyiceberg, the catalog's client and the warehouse into FlussErrors that name the operation."""
    try:
        yield
    except FlussError:
        raise
    except CommitStateUnknownException as error:
        message = f"{doing}: it is not known whether this succeeded; load the table again and check: {error}"
        raise FlussError(message, ErrorCode.STORAGE_EXCEPTION) from error
    except CommitFailedException as error:
        message = f"{doing}: another commit came first; load the table again and repeat the decision: {error}"
        raise FlussError(message, ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION) from error
    except Exception as error:  # from three libraries and the network, which share no base class
        raise FlussError(f"{doing}: {type(error).__name__}: {error}", ErrorCode.STORAGE_EXCEPTION) from error
