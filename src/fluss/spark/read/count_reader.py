"""The reader of a query that needs only the number of all rows: `df.count()`, `SELECT count(*) FROM t`.

Our Java classes ask for this reader (`COUNT_SCAN`). It returns numbers, which Spark adds up: a single number if it is
known without reading (`exact_count`), else one for each task of the usual read, whose rows stay in the task. In both
cases the rows counted are those of a read that is planned at the same moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from fluss.spark.convert.arrow import spark_arrow_schema
from fluss.spark.options.parsing import FlussOptions
from fluss.spark.read.batch_reader import FlussBatchReader, batch_options
from fluss.spark.read.count import exact_count
from fluss.spark.read.schema_check import check_schema
from fluss.spark.read.splits import Task
from fluss.spark.sessions.connection_cache import open_table


@dataclass(frozen=True, eq=False)
class CountSplit(InputPartition):
    """A number of rows that is already known."""

    rows: int


def build_count_reader(options: FlussOptions, schema: StructType) -> DataSourceReader:
    """Build a reader of row counts; `schema` has the one column for them."""
    return CountReader(batch_options(options), schema)


class CountReader(FlussBatchReader):
    """A read without columns, which returns only the numbers of rows."""

    def __init__(self, options: FlussOptions, schema: StructType) -> None:
        super().__init__(options, StructType())
        self._numbers = spark_arrow_schema(schema)

    def _planned(self) -> list[InputPartition]:
        """Plan at least one task, because Spark's sum over no numbers is null."""
        with open_table(self._options) as opened:
            check_schema(opened.info, self._options, self._schema)
            known = None if self._options.lake_view is not None else exact_count(opened, self._options)
            planned = super()._planned() if known is None else []
            return planned or [Task(opened.info.table_id, CountSplit(known or 0))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return one batch with the number of rows of a task."""
        assert isinstance(partition, Task), f"not a task of a count: {partition!r}"
        split = partition.split
        rows = split.rows if isinstance(split, CountSplit) else sum(map(len, self._batches(partition)))
        yield pa.RecordBatch.from_arrays([pa.array([rows], pa.int64())], schema=self._numbers)
