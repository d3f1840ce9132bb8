"""`fluss.spark.foreach_batch`: the sink for queries in update mode, which Spark does not allow for Python sinks.

Errors of Java are passed on without their stacks. Spark searches the message of an exception from a `foreachBatch`
function for signs that the query was only being stopped, with a pattern that needs stack frames for every character: on
the usual message that ends in a StackOverflowError, which hides the original error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fluss.errors import FlussError
from fluss.lazy_imports import import_lock
from fluss.spark.options.parsing import ADDRESS_OPTIONS, parse_options
from fluss.spark.options.session_options import inherited_options, over_defaults
from fluss.spark.sessions.session_cluster import merged_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROW_KIND_COLUMN = "_fluss_row_kind"
RANK_COLUMN = "_fluss_rank"
SIGNS_OF_STOPPING = ("InterruptedException", "ClosedByInterruptException", "InterruptedIOException", "JOB_CANCELLED")
STOPPED_TEXT = "py4j.protocol.Py4JJavaError: An error occurred while calling save: java.lang.InterruptedException"
"""The shortest message that Spark recognises as the end of a query that is being stopped."""
MAX_REASON_CHARACTERS = 4000
ADDRESS_TO_COME = "session:1"
"""A placeholder for the session's address while options are checked that do not depend on it."""

BatchFunction = Callable[["DataFrame", int], None]


def foreach_batch(
    *tables: str,
    bootstrap_servers: str | None = None,
    delete_where: str | Column | None = None,
    latest_by: str | Column | None = None,
    options: Mapping[str, str] | None = None,
) -> BatchFunction:
    """Return a function for `foreachBatch` that writes every batch to these tables::

        totals = events.groupBy("user").agg(sf.sum("amount").alias("total"))
        sink = fluss.spark.foreach_batch("shop.totals", bootstrap_servers="localhost:9123")
        totals.writeStream.outputMode("update").foreachBatch(sink).option("checkpointLocation", path).start()

    Rows of primary-key tables are upserted, so a repeated batch changes nothing. Rows of log tables are appended once
    per query, table and batch, as by the streaming sink. With several tables the rows are computed once and kept.

    `delete_where`: a condition; rows for which it is true delete their key. `latest_by`: a column for changes that
    arrive in any order; of several rows of a batch with the same primary key, only the one with the greatest value
    counts. `options` as for `format("fluss")`; those of the query's session (`spark.sql.fluss.*`) are their defaults.
    """
    settings = {**(options or {})}
    if bootstrap_servers is not None:
        settings["bootstrap.servers"] = bootstrap_servers
    if not tables:
        raise FlussError('foreach_batch needs a table: foreach_batch("database.table", ...)')
    if delete_where is not None:
        settings["rowKindColumn"] = ROW_KIND_COLUMN
    _check(tables, settings)

    def write_batch(frame: DataFrame, batch_id: int) -> None:
        if delete_where is not None:
            frame = _with_row_kinds(frame, delete_where)
        if len(tables) > 1:
            frame = frame.persist()
        try:
            for table in tables:
                target = _target(frame.sparkSession, settings, table, batch_id)
                rows = frame if latest_by is None else _latest(frame, _primary_key(target), latest_by)
                _save(rows, target, batch_id)
        finally:
            if len(tables) > 1:
                frame.unpersist()

    return write_batch


def _check(tables: Sequence[str], settings: Mapping[str, str]) -> None:
    """Check tables and options now, not with the first batch. The address may come later, from the query's session."""
    known = {key.lower() for key in (*settings, *inherited_options())}
    has_address = any(name.lower() in known for name in ADDRESS_OPTIONS)
    address = {} if has_address else {ADDRESS_OPTIONS[0]: ADDRESS_TO_COME}
    seen = set()
    for table in tables:
        if not isinstance(table, str):
            raise FlussError(
                f"foreach_batch takes names of tables as separate arguments, got {table!r}: "
                'write foreach_batch("database.table", "database.other")'
            )
        path = parse_options({**settings, **address, "table": table}, "batch writes").table
        if path in seen:
            raise FlussError(
                f"foreach_batch has table {path} twice, but the second write of a batch to a table counts as a "
                "repetition of the first. Name it once"
            )
        seen.add(path)


def _target(spark: SparkSession, settings: Mapping[str, str], table: str, batch_id: int) -> dict[str, str]:
    """The options of one write. All tables get the batch number, which the ones with a primary key ignore."""
    number = {"transactionbatch": str(batch_id)}
    said = {key: value for key, value in merged_options(spark, settings).items() if key not in number}
    return over_defaults(number, {**said, "table": table})


def _save(rows: DataFrame, target: Mapping[str, str], batch_id: int) -> None:
    try:
        rows.write.format("fluss").mode("append").options(**target).save()
    except Exception as error:
        from_java = getattr(error, "java_exception", None)  # of Py4J, which clients of Spark Connect do not have
        if from_java is None:
            raise
        reason = str(from_java.toString())
        if any(sign in reason for sign in SIGNS_OF_STOPPING):
            raise FlussError(STOPPED_TEXT) from None
        lines = [line for line in reason.splitlines() if not line.startswith("\tat ")]
        text = "\n".join(lines)[:MAX_REASON_CHARACTERS]
        raise FlussError(f"batch {batch_id} could not be written to table {target['table']}: {text}") from None


def _primary_key(settings: Mapping[str, str]) -> list[str]:
    with import_lock:
        from fluss.spark.sessions.connection_cache import open_table

    with open_table(parse_options(settings)) as opened:
        key = opened.info.get_primary_keys()
    if not key:
        raise FlussError(
            f"foreach_batch with latest_by needs a primary-key table, but {settings['table']} has no primary key"
        )
    return key


def _latest(frame: DataFrame, key: list[str], latest_by: str | Column) -> DataFrame:
    from pyspark.sql import functions as sf
    from pyspark.sql.window import Window

    order = sf.col(latest_by) if isinstance(latest_by, str) else latest_by
    ranked = frame.withColumn(RANK_COLUMN, sf.row_number().over(Window.partitionBy(*key).orderBy(order.desc())))
    return ranked.where(sf.col(RANK_COLUMN) == 1).drop(RANK_COLUMN)


def _with_row_kinds(frame: DataFrame, delete_where: str | Column) -> DataFrame:
    from pyspark.sql import functions as sf

    condition = sf.expr(delete_where) if isinstance(delete_where, str) else delete_where
    return frame.withColumn(ROW_KIND_COLUMN, sf.when(condition, sf.lit("-D")).otherwise(sf.lit("+U")))
