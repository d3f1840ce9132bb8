"""The reader of `spark.read.format("fluss")`.

Spark creates a reader in a process on the driver, offers the filters to it, pickles it for the tasks, and only then
asks it for the partitions. So a `FlussBatchReader` holds plain values, and the results of planning are in the
partitions.

Spark checks whether a class overrides `pushFilters`, and refuses every query of such a class while push-down is
disabled, which is the default. An attribute of the instance (`_Push`) does not count as an override, but Spark calls
it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from fluss.spark.convert.arrow import for_spark, spark_arrow_schema
from fluss.spark.options.parsing import FlussOptions
from fluss.spark.read import partition_pruning
from fluss.spark.read.binlog import binlog_columns, read_binlog
from fluss.spark.read.key_access import looked_up
from fluss.spark.read.lake_planner import LateUnionTask, UnionTask, lake_options_of, read_lake_task
from fluss.spark.read.lake_views import ViewSplit, view_split
from fluss.spark.read.log_reader import cheapest_column, read_log
from fluss.spark.read.output_batches import limited, sized
from fluss.spark.read.planner import Planner, check_table_id
from fluss.spark.read.pushdown import Pushed, push
from fluss.spark.read.rows_after_planning import LaterSplit
from fluss.spark.read.schema_check import check_schema
from fluss.spark.read.splits import LimitedSplit, LogSplit, LookupSplit, StateSplit, Task, WindowSplit
from fluss.spark.read.state_reader import read_state, read_window, selected
from fluss.spark.read.stored_batches import with_stored
from fluss.spark.sessions.connection_cache import OpenTable, open_table
from fluss.spark.sessions.outage_retries import patiently

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss.values.predicates import Predicate


def build_reader(options: FlussOptions, schema: StructType, *, takes_stored: bool = False) -> DataSourceReader:
    """Build a reader of the table in the options, with the columns of `schema`.

    With `takes_stored`, the last column holds messages as servers store them (`fluss.spark.read.stored_batches`).
    """
    if takes_stored:
        return FlussBatchReader(batch_options(options), StructType(schema.fields[:-1]), stored_column=schema.names[-1])
    return FlussBatchReader(batch_options(options), schema)


def batch_options(options: FlussOptions) -> FlussOptions:
    """The options without a start that applies only to streams."""
    if options.read.start_is_for_streams:
        return replace(options, read=replace(options.read, start=None))
    return options


class _Push:
    """Instance attribute that shadows `pushFilters` without overriding it in the class; see the module docstring."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: FlussBatchReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        return self._reader.accept(filters)


class FlussBatchReader(DataSourceReader):
    """The reader of batch queries. It holds plain values, because Spark pickles it."""

    def __init__(self, options: FlussOptions, schema: StructType, *, stored_column: str | None = None) -> None:
        self._options = options
        self._schema = schema
        self._stored_column = stored_column
        self._pushed = Pushed()
        self._predicate: Predicate | None = None
        self.pushFilters = _Push(self)  # type: ignore[method-assign]

    @property
    def _patience_seconds(self) -> float:
        return self._options.read.poll_timeout_ms / 1000

    @property
    def _table_columns(self) -> Sequence[str]:
        """The columns that are read from the table's rows."""
        return binlog_columns(self._schema).own if self._options.mode == "binlog" else self._schema.names

    # ---- on the driver ----

    def accept(self, filters: list[Filter]) -> list[Filter]:
        """Take the filters that are answered exactly; return those that Spark must apply itself.

        No filter is taken if Spark may reuse this reader for other queries (`fluss.spark.java.java_classes`). With a
        limit none is taken either: a limit counts rows before Spark's filters, and with or without push-down the result
        must be the same.
        """
        takes_none = self._options.mode in ("binlog", "lake")  # whose columns are not those of the table
        if takes_none or not self._options.own_scan or self._options.limit is not None:
            return list(filters)
        patiently(lambda: self._take(filters), self._patience_seconds)
        return list(self._pushed.refused)

    def _take(self, filters: list[Filter]) -> None:
        with open_table(self._options) as opened:
            self._pushed = push(filters, opened.access.schema, self._schema.names)
            self._predicate = self._rest_of_filter(opened)

    def partitions(self) -> list[InputPartition]:
        """Plan the tasks; raise for options that the table does not allow. Waits while servers restart."""
        return patiently(self._planned, self._patience_seconds)

    def _planned(self) -> list[InputPartition]:
        with open_table(self._options) as opened:
            check_schema(opened.info, self._options, self._schema)
            if self._options.lake_view is not None:
                lake_options_of(self._options, opened.info)  # raises for a table without a lake
                split = view_split(opened, self._options.lake_view, self._options.read.snapshot_id)
                return [Task(opened.info.table_id, split)]
            planner = Planner(opened, self._options, self._table_columns, self._pushed)
            splits = planner.splits()
            if not self._options.own_scan:  # a later query may reuse this plan
                splits = planner.with_later_rows(splits)
            return [Task(opened.info.table_id, split) for split in splits]

    def _rest_of_filter(self, opened: OpenTable) -> Predicate | None:
        """The filter without the conditions that all rows of the chosen partitions satisfy."""
        columns = partition_pruning.readable_columns(opened.access.schema, opened.info.get_partition_keys())
        return self._pushed.without(columns)

    # ---- in the tasks ----

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return Arrow batches with exactly Spark's schema. Spark also calls this once if there are no partitions."""
        if not isinstance(partition, Task):
            return
        target = spark_arrow_schema(self._schema)
        batches = sized(self._batches(partition))
        if self._stored_column is None:
            yield from (for_spark(batch, target) for batch in batches)
        else:
            yield from with_stored(batches, target, self._stored_column)

    def _batches(self, task: Task) -> Iterator[pa.RecordBatch]:
        """The rows of a task as record batches, before conversion to Spark's types."""
        with contextlib.ExitStack() as stack:
            opened = patiently(lambda: stack.enter_context(open_table(self._options)), self._patience_seconds)
            check_table_id(opened, task.table_id)
            yield from self._rows(opened, task.split)

    def _rows(self, opened: OpenTable, split: InputPartition) -> Iterator[pa.RecordBatch]:
        patience_seconds = self._patience_seconds
        columns = self._schema.names
        if isinstance(split, LimitedSplit):
            return limited((batch for each in split.splits for batch in self._rows(opened, each)), split.limit)
        if isinstance(split, LaterSplit):
            later = Planner(opened, self._options, self._table_columns, self._pushed).later_splits(split)
            return (batch for each in later for batch in self._rows(opened, each))
        if isinstance(split, ViewSplit):
            return iter([split.batch])
        if isinstance(split, LateUnionTask):
            late = Planner(opened, self._options, self._table_columns, self._pushed).late_splits(split)
            return (batch for each in late for batch in self._rows(opened, each))
        if isinstance(split, LogSplit) and self._options.mode == "binlog":
            return read_binlog(opened, split.range, binlog_columns(self._schema), patience_seconds)
        if isinstance(split, LogSplit):
            takes_stored = self._stored_column is not None and self._options.limit is None
            stored_for = spark_arrow_schema(self._schema) if takes_stored else None
            return read_log(
                opened,
                split.range,
                columns,
                self._predicate,
                patience_seconds,
                stored_for=stored_for,
                skips_bad_batches=self._options.read.skips_bad_batches,
            )
        chosen = columns or [cheapest_column(opened.access.schema)]
        if isinstance(split, UnionTask):
            return read_lake_task(opened, split, chosen, self._pushed.predicate, patience_seconds)
        if isinstance(split, StateSplit):
            asked = [] if self._predicate is None else self._predicate.column_names()
            snapshot_will_do = self._options.read.read_optimized
            rows = read_state(opened, split, {*chosen, *asked}, patience_seconds, snapshot_will_do=snapshot_will_do)
        elif isinstance(split, WindowSplit):
            rows = read_window(opened, split, patience_seconds)
        else:
            assert isinstance(split, LookupSplit), f"unknown kind of split: {split!r}"
            rows = looked_up(opened.table, split)
        return selected(opened, rows, chosen, self._predicate)
