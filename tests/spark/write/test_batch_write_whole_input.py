"""A task that does not receive all its rows notices it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from fluss.errors import FlussError
from fluss.spark.write.input_check import spark_stream, whole
from tools.waiting import wait_until


class Notes(DataSourceArrowWriter):
    """Leaves a file with what it received."""

    def __init__(self, path: str) -> None:
        self._path = path

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        rows, end = 0, "whole"
        try:
            for batch in whole(iterator):
                rows += batch.num_rows
        except FlussError as error:
            end = error.message
        stream = "stream" if spark_stream() is not None else "nothing"
        # Complete when it exists: after a failure this task is not waited for, and the test may check at any moment.
        unfinished = Path(f"{self._path}.unfinished")
        unfinished.write_text(f"{rows} rows, {stream}, {end}")
        unfinished.rename(self._path)
        return WriterCommitMessage()


class NotesSource(DataSource):
    """A sink that shows what `whole` sees."""

    @classmethod
    def name(cls) -> str:
        return "notes"

    def writer(self, schema: StructType, overwrite: bool) -> Notes:
        return Notes(self.options["path"])


def test_the_end_of_the_rows_is_distinguished_from_a_failure(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(NotesSource)
    frame = spark.range(0, 30_000, 1, 1)
    frame.write.format("notes").mode("append").save(str(tmp_path / "good"))
    assert (tmp_path / "good").read_text() == "30000 rows, stream, whole"

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise ValueError("an earlier step")

    failing = frame.mapInArrow(fail, frame.schema)
    with pytest.raises(PySparkException, match="an earlier step"):
        failing.write.format("notes").mode("append").save(str(tmp_path / "bad"))
    wait_until(lambda: (tmp_path / "bad").exists(), "the note of the task")
    assert "an earlier step of it failed" in (tmp_path / "bad").read_text()


def test_outside_of_spark() -> None:
    batches = [pa.record_batch({"n": [1]})]
    assert list(whole(batches)) == batches
