"""Batch reads without Spark's processes: the reader is planned and its tasks run one after another in this one.

Spark's steps in between are kept: the reader and the tasks are pickled as Spark pickles them. Filters that the reader
gives back are left to the test.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

import fluss
from fluss.spark.convert.arrow import spark_arrow_schema
from fluss.spark.java.java_classes import COUNT_SCAN, OWN_SCAN_OPTION, STORED_SCAN
from fluss.spark.read.splits import Task
from fluss.spark.source import FlussDataSource
from tests.support.servers.targets import Target
from tools.waiting import wait_until

STORED_COLUMN = "__stored_batch"


@dataclass(frozen=True)
class Reading:
    """A planned read."""

    reader: DataSourceReader
    tasks: list[Task]
    schema: pa.Schema
    left_to_spark: list[Filter]

    @property
    def kinds(self) -> list[str]:
        """The kinds of the tasks' splits."""
        return [type(task.split).__name__ for task in self.tasks]

    @property
    def split(self) -> Any:
        """The split of the only task."""
        (task,) = self.tasks
        return task.split

    def batches(self) -> Iterator[Any]:
        """The batches of all tasks."""
        for task in list[InputPartition](self.tasks) or [InputPartition(None)]:
            for batch in self.reader.read(task):
                assert isinstance(batch, pa.RecordBatch)
                assert batch.schema.equals(self.schema), "Spark would refuse it"
                yield batch

    def table(self) -> pa.Table:
        """All rows as a table."""
        return pa.Table.from_batches(list(self.batches()), self.schema)

    def rows(self, key: str | None = None) -> list[dict[str, Any]]:
        """All rows as dicts, sorted by a column."""
        rows: list[dict[str, Any]] = self.table().to_pylist()
        return rows if key is None else sorted(rows, key=lambda row: row[key])

    @property
    def count(self) -> int:
        """The sum of the numbers of `plan_count`, as in Spark."""
        return sum(self.column("count(*)"))

    def column(self, name: str) -> list[Any]:
        """The values of a column, sorted."""
        return sorted(self.table().column(name).to_pylist())


def plan_read(
    target: Target,
    path: str,
    *,
    filters: Sequence[Filter] = (),
    schema: StructType | None = None,
    own_scan: bool = True,
    **options: Any,
) -> Reading:
    """Plan a read as Spark does, with `own_scan` as our Java classes do: otherwise the reader takes no filters."""
    given = {name: str(value) for name, value in options.items()}
    if own_scan:
        given[OWN_SCAN_OPTION] = "true"
    source = FlussDataSource({"bootstrap.servers": target.bootstrap_servers, "path": path, **given})
    chosen = schema or source.schema()
    assert isinstance(chosen, StructType)
    reader = source.reader(chosen)
    left = list(reader.pushFilters(list(filters))) if filters else []
    shipped = _pickled(reader)
    return Reading(shipped, _pickled(reader.partitions()), spark_arrow_schema(chosen), left)


def plan_count(target: Target, path: str, **options: Any) -> Reading:
    """Plan a query for count(*) alone, as our Java classes do."""
    numbers = StructType([StructField("count(*)", LongType(), False)])
    return plan_read(target, path, schema=numbers, own_scan=False, **{OWN_SCAN_OPTION: COUNT_SCAN, **options})


def plan_stored(target: Target, path: str, *, filters: Sequence[Filter] = (), **options: Any) -> Reading:
    """Plan a batch read as our Java classes do: with an extra last column for messages."""
    given = {name: str(value) for name, value in options.items()}
    source = FlussDataSource({"bootstrap.servers": target.bootstrap_servers, "path": path, **given})
    schema = source.schema().add(STORED_COLUMN, BinaryType())
    return plan_read(
        target, path, schema=schema, own_scan=False, filters=filters, **{OWN_SCAN_OPTION: STORED_SCAN, **options}
    )


def _pickled(value: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Place:
    """A server and a database of one test, for reads in this process."""

    target: Target
    db: fluss.Database
    name: str

    def create(self, table: str, schema: Any, **options: Any) -> str:
        """Create a table and return its path."""
        path = f"{self.name}.{table}"
        self.db.create_table(path, schema, **options)
        return path

    def read(self, path: str, **options: Any) -> Reading:
        """Plan a read."""
        return plan_read(self.target, path, **options)

    def count(self, path: str, **options: Any) -> Reading:
        """Plan a count."""
        return plan_count(self.target, path, **options)


def later_commit_time() -> None:
    """Wait until new rows get another commit time than earlier ones."""
    start = time.time()
    wait_until(lambda: time.time() - start > 0.003, "a later time")


@contextlib.contextmanager
def new_place(target: Target) -> Iterator[Place]:
    """A new database."""
    name = f"db_{uuid.uuid4().hex[:12]}"
    with fluss.connect(target.config(), database=name) as db:
        db.create_database(name)
        yield Place(target, db, name)
