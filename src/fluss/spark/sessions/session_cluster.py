"""The cluster of a Spark session, for functions that receive the session: its address and its admin calls.

Options of the call win over the current `spark.sql.fluss.*` of the session, and these win over the options that
`fluss.spark.session` was given.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from fluss.errors import FlussError
from fluss.lazy_imports import import_lock
from fluss.model.paths import TablePath
from fluss.spark.options.session_options import inherited_options, over_defaults, session_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fluss.client.engine.admin import AdminCalls
    from fluss.client.engine.engine import Engine

T = TypeVar("T")


def table_options(spark: SparkSession, table: str | None = None, **options: object) -> dict[str, str]:
    """The options for `format("fluss")` from the session's settings, for settings made after the session started::

    spark.conf.set("spark.sql.fluss.bootstrap.servers", "localhost:9123")
    spark.read.format("fluss").options(**fluss.spark.table_options(spark, "shop.orders")).load()
    """
    merged = merged_options(spark, options)
    return merged if table is None else {**merged, "table": table}


def merged_options(spark: SparkSession, options: Mapping[str, object] | None) -> dict[str, str]:
    """Merge options of a call over those of the session and note which are the session's; keys in lower case."""
    settings = {str(key): str(value) for key, value in dict(spark.conf.getAll).items()}
    given = {key.lower(): _as_string(value) for key, value in (options or {}).items()}
    # A classic session has all of its options; those in the environment may come from an earlier session.
    inherited = {} if hasattr(spark, "_jsparkSession") else inherited_options()
    return over_defaults({**inherited, **session_options(settings)}, given)


def _as_string(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Admin:
    """Admin calls over a leased connection."""

    engine: Engine

    @property
    def calls(self) -> AdminCalls:
        """The admin calls, as coroutines for `run`."""
        return self.engine.admin

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run one of `calls` and wait for it."""
        with import_lock:
            from fluss.spark.sessions.connection_cache import CALL_SECONDS

        return self.engine.run(coroutine, CALL_SECONDS)


@contextlib.contextmanager
def admin_of(spark: SparkSession, options: Mapping[str, object] | None = None) -> Iterator[Admin]:
    """The admin calls of the session's cluster, for the `with` block."""
    with import_lock:
        from fluss.api.connection import engine_of
        from fluss.spark.options.parsing import client_options
        from fluss.spark.sessions.connection_cache import lease

    with lease(client_options(merged_options(spark, options))) as connection:
        yield Admin(engine_of(connection))


def table_path(name: str) -> TablePath:
    """Parse `database.table`, or the name of a table in the default database.

    >>> str(table_path("orders"))
    'fluss.orders'
    """
    with import_lock:
        from fluss.spark.options.parsing import DEFAULT_DATABASE

    parts = name.split(".") if isinstance(name, str) else []
    if len(parts) not in (1, 2) or not all(parts):
        raise FlussError(f"the name of a table must be 'database.table' or 'table', got {name!r}")
    return TablePath(parts[0] if len(parts) == 2 else DEFAULT_DATABASE, parts[-1])
