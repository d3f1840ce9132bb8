"""The baselines of the Spark benchmark: Python sources that do nothing, and the rows that go through them.

`counting` takes rows and keeps none, in batches and in streams: it has all the cost of passing rows from Java to Python
and none of storing them. `idle` is a stream whose micro-batches have no rows: it has all the cost of a micro-batch with
a Python source and none of reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Like the rows of the other benchmarks: 4 whole numbers, 4 floating ones, 8 strings of 102 characters that compress
# like logs, about 0.9 KB together.
_TEXT = "lpad(id, 12, '0'), ' ', lpad(lower(hex((id * 2654435761) % 4294967296)), 8, '0')"
WIDE_COLUMNS = (
    *(f"id * {n + 1} AS i{n}" for n in range(4)),
    *(f"CAST(id AS DOUBLE) / {n + 3} AS f{n}" for n in range(4)),
    *(f"rpad(concat('{n}:', {_TEXT}, ' user agent and request path of event '), 102, 'x') AS s{n}" for n in range(8)),
)
TWO_COLUMNS = ("i1", "s3")
# The five columns of the benchmarks of rows and primary-key tables.
NARROW_COLUMNS = (
    "id",
    "concat('name ', id % 1000) AS name",
    "CAST(id AS DOUBLE) / 3 AS score",
    "id % 2 = 0 AS flag",
    "CAST(id % 100000 AS INT) AS count",
)


def wide_rows(spark: SparkSession, rows: int, tasks: int) -> DataFrame:
    """Rows of sixteen columns, computed at each use."""
    return spark.range(0, rows, 1, tasks).selectExpr(*WIDE_COLUMNS)


def narrow_rows(spark: SparkSession, rows: int, tasks: int) -> DataFrame:
    """Rows of five columns, with `id` as their key."""
    return spark.range(0, rows, 1, tasks).selectExpr(*NARROW_COLUMNS)


def count(batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    """Count all rows."""
    if sum(batch.num_rows for batch in batches) < 0:
        raise AssertionError("rows cannot be fewer than none")
    return WriterCommitMessage()


class CountingWriter(DataSourceArrowWriter):
    """A batch writer that only counts."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Count the rows of a task."""
        return count(iterator)


class CountingStreamWriter(DataSourceStreamArrowWriter):
    """A streaming writer that only counts."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Count the rows of a task."""
        return count(iterator)


class CountingSource(DataSource):
    """`format("counting")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "counting"

    def writer(self, schema: StructType, overwrite: bool) -> CountingWriter:
        """A writer of one job."""
        return CountingWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> CountingStreamWriter:  # noqa: N802 - Spark's name
        """A writer of one micro-batch."""
        return CountingStreamWriter()


class IdleReader(DataSourceStreamReader):
    """A stream that always has one more batch, of one task without rows."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The start of a query."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch."""
        return {"batch": int(start["batch"]) + 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return no rows."""
        return iter(())


class IdleSource(DataSource):
    """`format("idle")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "idle"

    def schema(self) -> str:
        """One column without any rows."""
        return "id BIGINT"

    def streamReader(self, schema: StructType) -> IdleReader:  # noqa: N802 - Spark's name
        """The reader of one query."""
        return IdleReader()
