"""Three-part names in SQL: `SELECT ... FROM fl.shop.orders`, which reads only the needed columns. Optional.

    fluss.spark.catalog.register(spark, "fl", "localhost:9123")
    spark.sql("SELECT status, count(*) FROM fl.shop.orders GROUP BY status").show()

Spark's catalogs are Java classes: `fluss.spark.java.java_classes` compiles ours. The catalog is tested with the minor
versions of Spark in `TESTED_SPARK`, and `register` refuses others unless `allow_untested` is set. `format("fluss")` and
`fluss.spark.attach` work without the catalog.

The Java class asks this process about databases and tables through Py4J (`_Answers`): JSON in, JSON out. So the catalog
needs a classic session, whose driver is this process; on Spark Connect `register` raises an error. Requests come from
threads of Spark; each makes its own admin call, and errors are answered as message and code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fluss.errors import ErrorCode, FlussError
from fluss.lazy_imports import import_lock
from fluss.spark.java.java_classes import CATALOG_CLASS, TESTED_SPARK, is_tested, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from fluss.client.engine.admin import TableInfo
    from fluss.spark.options.parsing import NanosAs

_SPARK_PROPERTIES = frozenset(
    {"provider", "owner", "location", "external", "is_managed_location", "table_type", "collation"}
)
"""Properties that Spark adds to tables and databases for itself."""
_FILE_FORMATS = ("hive.stored-as", "hive.input-format", "hive.output-format", "hive.serde")
"""The properties to which Spark converts the clauses STORED AS and ROW FORMAT."""


def register(
    spark: SparkSession,
    name: str,
    bootstrap_servers: str | None = None,
    *,
    options: Mapping[str, object] | None = None,
    allow_untested: bool = False,
) -> None:
    """Make the tables of a cluster available in SQL as `name.database.table`.

    `options` are those of `format("fluss")`, for all tables; they win over the session's settings
    (`spark.sql.fluss.*`), from which `bootstrap_servers` may come.
    """
    _check_session(spark, name, allow_untested)
    settings = {key: str(value) for key, value in (options or {}).items()}
    if bootstrap_servers is not None:
        settings["bootstrap.servers"] = bootstrap_servers
    load(spark)
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
    spark.conf.set(f"spark.sql.catalog.{name}", CATALOG_CLASS)
    _answer(spark, name)


def _check_session(spark: SparkSession, name: str, allow_untested: bool) -> None:
    if not hasattr(spark, "_jsparkSession"):
        raise FlussError(
            "three-part names need a classic Spark session, but this one is Spark Connect: "
            "use fluss.spark.attach(spark, database) instead"
        )
    if not name.isidentifier():
        raise FlussError(f"the name of a catalog must consist of letters, digits and '_', got {name!r}")
    if not is_tested(spark) and not allow_untested:
        raise FlussError(
            f"the catalog is tested with Spark {' and '.join(TESTED_SPARK)}, but this is {spark.version}: "
            "use fluss.spark.attach(spark, database), or try it with allow_untested=True"
        )
    if spark.conf.get(f"spark.sql.catalog.{name}", None) not in (None, CATALOG_CLASS):
        raise FlussError(f"the session already has a catalog named {name!r}: choose another name")


# ---- answers for the Java class ----


def _answer(spark: SparkSession, name: str) -> None:
    from pyspark import java_gateway
    from pyspark.sql import SparkSession

    # Spark looks for the settings of a catalog in the session of the calling thread; a new thread has none.
    sessions: Any = SparkSession._get_j_spark_session_class(spark._jvm)
    sessions.setActiveSession(spark._jsparkSession)
    start: Any = java_gateway.ensure_callback_server_started
    start(spark.sparkContext._gateway)
    session: Any = spark._jsparkSession
    jvm: Any = spark._jvm
    prefix = f"spark.sql.catalog.{name}."
    options = jvm.java.util.HashMap()
    for key, value in spark.conf.getAll.items():
        if key.startswith(prefix):
            options.put(key[len(prefix) :], value)
    catalog = session.sessionState().catalogManager().catalog(name)
    # Spark keeps a catalog with the options of its first use; one that is registered again must get the new options.
    catalog.initialize(name, jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(options))
    catalog.answerWith(_Answers(spark))


class _Answers:
    """A `java.util.function.Function` for Py4J: the JSON of a request in, the JSON of its answer out."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def apply(self, request: str) -> str:
        """Answer one request; never raises, because the answer has the error."""
        try:
            arguments = json.loads(request)
            call: Callable[..., Any] = getattr(self, "_" + arguments.pop("call"))
            return json.dumps({"result": call(**arguments)})
        except FlussError as error:
            return json.dumps({"error": str(error), "code": error.error_code})
        except Exception as error:  # any error must reach Java as a string
            return json.dumps({"error": f"{type(error).__name__}: {error}", "code": int(ErrorCode.CLIENT_ERROR)})

    def _list_tables(self, database: str, options: dict[str, str]) -> list[str]:
        with import_lock:
            from fluss.spark.sql import ddl

        return ddl.list_tables(self._spark, database, options=options)

    def _load_table(self, table: str, options: dict[str, str]) -> dict[str, object]:
        with import_lock:
            from fluss.spark.convert.types import source_schema
            from fluss.spark.options.parsing import parse_options
            from fluss.spark.sql import ddl

        parsed = parse_options({**options, "table": table})
        info = ddl.table_info(self._spark, str(parsed.table), options=options)
        schema = source_schema(info, parsed)
        # Not if the read lacks a partition column, or has changes instead of rows. Those of the lake are not listed.
        shows_keys = set(info.partition_keys) <= set(schema.names)
        partitioned_by = info.partition_keys if shows_keys and parsed.mode not in ("changelog", "binlog") else []
        return {
            "schema": schema.json(),
            "properties": described(info),
            "partitioned_by": partitioned_by,
            "has_partitions": bool(partitioned_by) and parsed.mode != "lake",
        }

    def _create_table(
        self,
        table: str,
        schema: str,
        partitioned_by: list[str],
        properties: dict[str, str],
        options: dict[str, str],
    ) -> None:
        with import_lock:
            from fluss.spark.sql import ddl

        _check_statement(properties, str(self._spark.conf.get("spark.sql.sources.default")))
        ddl.create_table(
            self._spark,
            table,
            _columns(schema),
            partitioned_by=partitioned_by,
            properties=_user_properties(properties),
            options=options,
        )

    def _alter_table(
        self,
        table: str,
        add_columns: str | None,
        set_properties: dict[str, str],
        unset_properties: list[str],
        options: dict[str, str],
    ) -> None:
        with import_lock:
            from fluss.spark.sql import ddl

        ddl.alter_table(
            self._spark,
            table,
            add_columns=None if add_columns is None else _columns(add_columns),
            set_properties=set_properties,
            unset_properties=unset_properties,
            options=options,
        )

    def _drop_table(self, table: str, options: dict[str, str]) -> None:
        with import_lock:
            from fluss.spark.sql import ddl

        ddl.drop_table(self._spark, table, options=options)

    def _list_partitions(self, table: str, values: dict[str, object], options: dict[str, str]) -> list[list[object]]:
        with import_lock:
            from fluss.spark.convert.partition_json import values_to_json
            from fluss.spark.sql import ddl

        info, texts, nanos_as = self._partition(table, values, options)
        found = ddl.list_partitions(self._spark, table, texts, options=options)
        return [values_to_json(info, each, nanos_as) for each in found]

    def _create_partition(self, table: str, values: dict[str, object], options: dict[str, str]) -> None:
        with import_lock:
            from fluss.spark.sql import ddl

        _, texts, _ = self._partition(table, values, options)
        ddl.create_partition(self._spark, table, texts, options=options)

    def _drop_partition(self, table: str, values: dict[str, object], options: dict[str, str]) -> None:
        with import_lock:
            from fluss.spark.sql import ddl

        _, texts, _ = self._partition(table, values, options)
        ddl.drop_partition(self._spark, table, texts, options=options)

    def _partition(
        self, table: str, values: dict[str, object], options: dict[str, str]
    ) -> tuple[TableInfo, dict[str, str], NanosAs]:
        """The table, the strings of Spark's partition values, and Spark's form of nanoseconds."""
        with import_lock:
            from fluss.spark.convert.partition_json import texts_from_json
            from fluss.spark.options.parsing import parse_options
            from fluss.spark.sql import ddl

        nanos_as = parse_options({**options, "table": table}).nanos_as
        info = ddl.table_info(self._spark, table, options=options)
        return info, texts_from_json(info, values, nanos_as), nanos_as

    def _list_databases(self, options: dict[str, str]) -> list[str]:
        with import_lock:
            from fluss.spark.sql import ddl

        return ddl.list_databases(self._spark, options=options)

    def _load_database(self, database: str, options: dict[str, str]) -> dict[str, str]:
        with import_lock:
            from fluss.spark.sql import ddl

        descriptor = ddl.database_info(self._spark, database, options=options).database_descriptor
        comment = {} if descriptor.comment is None else {"comment": descriptor.comment}
        return {**descriptor.get_custom_properties(), **comment}

    def _create_database(self, database: str, properties: dict[str, str], options: dict[str, str]) -> None:
        with import_lock:
            from fluss.spark.sql import ddl

        own = _user_properties(properties)
        ddl.create_database(self._spark, database, comment=own.pop("comment", None), properties=own, options=options)

    def _alter_database(
        self,
        database: str,
        set_properties: dict[str, str],
        unset_properties: list[str],
        options: dict[str, str],
    ) -> None:
        with import_lock:
            from fluss.spark.sql import ddl

        comment = set_properties.pop("comment", None)
        ddl.alter_database(
            self._spark,
            database,
            set_properties=set_properties,
            unset_properties=unset_properties,
            comment=comment,
            options=options,
        )

    def _drop_database(self, database: str, cascade: bool, options: dict[str, str]) -> None:
        with import_lock:
            from fluss.spark.sql import ddl

        ddl.drop_database(self._spark, database, cascade=cascade, options=options)

    class Java:
        """Py4J creates a Java object that implements this interface."""

        implements = ("java.util.function.Function",)


def described(info: Any) -> dict[str, str]:
    """The properties in DESCRIBE and SHOW TBLPROPERTIES, named as CREATE TABLE accepts them."""
    with import_lock:
        from fluss.spark.sql.ddl import BUCKET_COUNT, BUCKET_KEY, COMMENT, PRIMARY_KEY

    shown = {**info.properties, **info.custom_properties, BUCKET_COUNT: str(info.num_buckets)}
    for key, columns in ((PRIMARY_KEY, info.primary_keys), (BUCKET_KEY, info.bucket_keys)):
        if columns:
            shown[key] = ",".join(columns)
    if info.comment:
        shown[COMMENT] = info.comment
    return shown


def _columns(schema: str) -> StructType:
    """Parse the JSON of a schema. PySpark drops collations of CHAR and VARCHAR, so they are refused here, not later."""
    from pyspark.sql.types import StructType

    with import_lock:
        from fluss.spark.convert.types import from_spark_schema

    columns = StructType.fromJson(json.loads(schema))
    from_spark_schema(columns)
    if '"__COLLATIONS":' in schema:
        raise FlussError("a CHAR or VARCHAR column has a collation, which tables do not store: leave it out")
    return columns


def _check_statement(properties: Mapping[str, str], default_format: str) -> None:
    """Raise for clauses of CREATE TABLE that are not supported here.

    Spark adds its default format to statements without one (`df.write.saveAsTable`), so the default format is ignored.
    """
    if "location" in properties:
        raise FlussError("LOCATION is not supported, because servers choose where tables are stored: leave it out")
    other = [properties[key] for key in _FILE_FORMATS if key in properties]
    if properties.get("provider", "fluss").lower() not in ("fluss", default_format.lower()):
        other.append(properties["provider"])
    if other:
        raise FlussError(
            f"tables of this catalog have the format fluss, not {other[0]}: leave the format out, or write USING fluss"
        )
    if properties.get("collation", "UTF8_BINARY").upper() != "UTF8_BINARY":
        raise FlussError(f"tables do not store collations: leave DEFAULT COLLATION {properties['collation']} out")


def _user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {
        key: value
        for key, value in properties.items()
        if key not in _SPARK_PROPERTIES and not key.startswith("option.")
    }
