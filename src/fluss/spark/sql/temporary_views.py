"""Temporary views for the tables of a database, so that SQL can use them by their plain names.

    attached = fluss.spark.attach(spark, "shop")
    spark.sql("SELECT status, count(*) FROM orders GROUP BY status").show()
    spark.sql("INSERT INTO orders VALUES (7, 'new')")
    attached.refresh()      # after tables were created, dropped or altered
    attached.detach()

A view has the columns that its table had when the view was created, and the rows that the table has now: views read
with `end=open` unless the options set an end. Views belong to the session, as temporary views do. If the session
already uses a name for something else, `attach` raises and changes nothing.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fluss.errors import FlussError
from fluss.lazy_imports import import_lock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.catalog import Table

DEFAULT_DATABASE = "fluss"
MAX_VIEWS = 1000
SESSION_CATALOG = "spark_catalog"
"""Spark's name for the built-in catalog of every session."""


def attach(
    spark: SparkSession,
    database: str = DEFAULT_DATABASE,
    *,
    like: str | None = None,
    prefix: str = "",
    replace: bool = False,
    options: Mapping[str, object] | None = None,
) -> Attached:
    """Create a temporary view, to select from and insert into, for every table of a database.

    `like` takes only tables whose names match a pattern (`orders_*`), `prefix` is put in front of the names of views,
    `replace` takes over names that are in use. `options` are those of `format("fluss")`, for all views.
    """
    attached = Attached(spark, database, like, prefix, replace, dict(options or {}))
    attached.refresh()
    return attached


class Attached:
    """The views of one call of `attach`; the end of a `with` block drops them."""

    def __init__(
        self,
        spark: SparkSession,
        database: str,
        like: str | None,
        prefix: str,
        replace: bool,
        options: dict[str, object],
    ) -> None:
        self._spark = spark
        self._database = database
        self._like = like
        self._prefix = prefix
        self._replace = replace
        self._options = options
        self._views: dict[str, str] = {}

    @property
    def views(self) -> dict[str, str]:
        """The names of the views, each with the table that it shows."""
        return dict(self._views)

    def refresh(self) -> Attached:
        """Create views for new tables, update the columns of altered ones, and drop views of dropped tables."""
        with import_lock:
            from fluss.spark.options.session_options import over_defaults
            from fluss.spark.sessions.session_cluster import merged_options

        wanted = self._wanted()
        self._check_names(wanted)
        options = {"end": "open", **merged_options(self._spark, self._options)}
        if any(key.startswith("scan.incremental.") for key in options):
            options.pop("end")
        for view, table in wanted.items():
            self._spark.sql(_create_view(view, over_defaults(options, {"table": table})))
            self._views[view] = table
        for view in [view for view in self._views if view not in wanted]:
            self._drop(view)
        return self

    def detach(self) -> None:
        """Drop the views; the tables stay."""
        for view in list(self._views):
            self._drop(view)

    def _wanted(self) -> dict[str, str]:
        with import_lock:
            from fluss.spark.sql.ddl import list_tables

        tables = list_tables(self._spark, self._database, options=self._options)
        if self._like is not None:
            tables = fnmatch.filter(tables, self._like)
        if len(tables) > MAX_VIEWS:
            raise FlussError(
                f"database {self._database} has {len(tables)} tables, but at most {MAX_VIEWS} can be attached at once: "
                "choose some with like='...'"
            )
        return {f"{self._prefix}{table}": self._path(table) for table in tables}

    def _check_names(self, wanted: Mapping[str, str]) -> None:
        """Raise for names that differ only in case, which Spark ignores and servers do not, and for names in use."""
        seen: dict[str, str] = {}
        for view in wanted:
            other = seen.setdefault(view.lower(), view)
            if other != view:
                raise FlussError(
                    f"tables {wanted[other]} and {wanted[view]} differ only in case, which Spark ignores: "
                    "attach them one at a time with like='...' and different prefixes"
                )
        if self._replace:
            return
        own = {view.lower() for view in self._views}
        found = [table for table in self._in_use() if table.name.lower() in seen.keys() - own]
        if found and self._is_current_database():
            # A view that shows the table of the same name hides nothing.
            found = [each for each in found if each.isTemporary or wanted.get(each.name) != self._path(each.name)]
        taken = sorted(table.name for table in found)
        if taken:
            raise FlussError(
                f"the session already has tables or views named {', '.join(taken)}: give attach() a prefix, "
                "such as prefix='fluss_', or replace=True"
            )

    def _in_use(self) -> list[Table]:
        """The tables and views that plain names mean now: those of the current database, and temporary views."""
        catalog = self._spark.catalog
        found = list(catalog.listTables())
        if catalog.currentCatalog() != SESSION_CATALOG:  # only its list has the temporary views
            found += [each for each in catalog.listTables(f"{SESSION_CATALOG}.default") if each.isTemporary]
        return found

    def _is_current_database(self) -> bool:
        """True if unqualified names in SQL already mean tables of this database, after `USE` of one of our catalogs."""
        with import_lock:
            from fluss.spark.java.java_classes import CATALOG_CLASS
            from fluss.spark.options.parsing import client_options
            from fluss.spark.sessions.session_cluster import merged_options

        current = self._spark.catalog
        prefix = f"spark.sql.catalog.{current.currentCatalog()}"
        if self._spark.conf.get(prefix, None) != CATALOG_CLASS or current.currentDatabase() != self._database:
            return False
        settings = dict(self._spark.conf.getAll)
        of_catalog = {key[len(prefix) + 1 :]: value for key, value in settings.items() if key.startswith(f"{prefix}.")}
        addresses = {
            client_options(merged_options(self._spark, options)).bootstrap_servers
            for options in (of_catalog, self._options)
        }
        return len(addresses) == 1

    def _path(self, table: str) -> str:
        return f"{self._database}.{table}"

    def _drop(self, view: str) -> None:
        self._spark.catalog.dropTempView(view)
        del self._views[view]

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    def __repr__(self) -> str:
        return f"Attached({self._database!r}, {len(self._views)} views: {', '.join(self._views)})"


def _create_view(view: str, options: Mapping[str, str]) -> str:
    pairs = ", ".join(f"{_literal(key)} {_literal(value)}" for key, value in sorted(options.items()))
    return f"CREATE OR REPLACE TEMPORARY VIEW {_identifier(view)} USING fluss OPTIONS ({pairs})"


def _identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
