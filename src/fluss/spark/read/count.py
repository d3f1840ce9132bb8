"""`fluss.spark.count()`: the number of rows without reading them, where that is exact.

The function also works in sessions without our Java classes. With these, `DataFrame.count()` does the same
(`count_reader`); without them, Spark asks a Python source for all columns of all rows and counts the rows itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fluss.errors import FlussError
from fluss.lake.reading.plan import UnionPlan
from fluss.spark.convert.types import LOG_OFFSET_COLUMN
from fluss.spark.options.parsing import FlussOptions, parse_options
from fluss.spark.read.batch_reader import batch_options
from fluss.spark.read.lake_planner import exact_rows, lake_options_of, make_plan
from fluss.spark.read.log_reader import cheapest_column
from fluss.spark.read.offset_ranges import TableBuckets, has_range, resolve
from fluss.spark.read.pushdown import Pushed
from fluss.spark.sessions.connection_cache import OpenTable, open_table
from fluss.spark.sessions.session_cluster import table_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def count(spark: SparkSession, table: str, *, options: Mapping[str, object] | None = None) -> int:
    """Return the number of rows that a batch read with these options would have::

        fluss.spark.count(spark, "shop.orders", options={"start": "timestamp:2026-08-01"})

    A log table is counted by its offsets, the current state of a primary-key table by its servers; both take
    milliseconds. Where neither is exact (time ranges, changelogs, tables without old images), Spark reads one column.
    """
    given = table_options(spark, table, **(options or {}))
    parsed = batch_options(parse_options(given, "batch reads"))
    if parsed.lake_view is not None:
        return spark.read.format("fluss").options(**given).load().count()
    with open_table(parsed) as opened:
        if parsed.mode == "state" and not opened.info.has_primary_key():
            path = opened.info.table_path
            raise FlussError(f"table {path} has no primary key, which mode=state needs: leave the mode out")
        found = exact_count(opened, parsed)
        is_binlog = parsed.mode == "binlog"
        column = LOG_OFFSET_COLUMN if is_binlog else cheapest_column(opened.access.schema)
    if found is None:
        found = spark.read.format("fluss").options(**{**given, "columns": column}).load().count()
    return found


def _has_lake_only(plan: UnionPlan) -> bool:
    """True if the plan has partitions that are only in the lake, whose rows the servers do not count."""
    return any(split.partition_name is not None and split.partition_id is None for split in plan.splits)


def exact_count(opened: OpenTable, options: FlussOptions) -> int | None:
    """Return the number of rows of a read if it is known without reading them, else None."""
    found = _all_rows(opened, options)
    return found if found is None or options.limit is None else min(found, options.limit)


def _all_rows(opened: OpenTable, options: FlussOptions) -> int | None:
    """Return the number of rows as `exact_count` does, ignoring the limit."""
    partitions = None
    if opened.info.is_partitioned():
        partitions = opened.run(opened.admin.list_partition_infos(opened.info.table_path, None))
    lake = lake_options_of(options, opened.info)
    if lake is not None:
        plan = make_plan(opened, lake, Pushed())
        if plan is not None and (lake.is_lake_only or not opened.info.has_primary_key() or _has_lake_only(plan)):
            is_known = opened.info.has_primary_key() or lake.is_lake_only
            if not is_known and TableBuckets(opened, partitions).have_gaps():
                return None
            return exact_rows(plan, opened.info.has_primary_key())
    buckets = TableBuckets(opened, partitions)
    if not buckets.buckets:
        return 0
    if opened.info.has_primary_key():
        if options.mode in ("changelog", "binlog") or has_range(options.read):
            return None  # some offsets have no row, and some keys change several times
        if options.read.read_optimized:
            return None  # snapshots of Apache Fluss may have fewer rows than its servers count
        counts = opened.run(opened.access.row_counts(buckets.buckets))
        return None if counts is None else sum(counts.values())
    ranges = resolve(buckets, options.read)
    if any(each.since_ms is not None or each.until_ms is not None for each in ranges):
        return None  # the offsets of a time may be coarse
    return None if buckets.have_gaps() else sum(each.count for each in ranges)
