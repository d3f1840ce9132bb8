"""The Spark program of the cluster tests: `python -m tests.support.spark.cluster_job <session as JSON>`.

Every line of its input is a job, every line of its output the answer to one, so that several jobs share the start of
Spark. `pipeline`: rows are written to a log table, streamed into another log table and into a primary-key table, and
all are read back. `attempts`: rows are written by tasks of which one fails once and one runs twice; every attempt
leaves a file in the folder of the job.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tools.waiting import patience, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 60_000
WRITE_TASKS = 4
ROWS_PER_BATCH = ROWS // 2
QUERY_SECONDS = int(patience(240))
ATTEMPTED_ROWS = 60_000
ATTEMPTED_TASKS = 3
FAILING, SLOW = 1, 2
SECOND_ATTEMPT_SECONDS = patience(200.0)


def write(spark: SparkSession, job: dict[str, Any]) -> None:
    """Write the rows as a batch."""
    rows = spark.range(0, ROWS, 1, WRITE_TASKS).selectExpr("id", "concat('row ', id) AS text", "id % 100 AS rest")
    rows.write.format("fluss").mode("append").options(**job["options"]).save(job["source"])


def stream(spark: SparkSession, job: dict[str, Any]) -> None:
    """Run both streams at once, in several batches each."""
    queries = []
    for table, checkpoint in job["sinks"].items():
        reader = spark.readStream.format("fluss").options(**job["options"])
        source = reader.option("start", "earliest").option("maxRowsPerTrigger", ROWS_PER_BATCH).load(job["source"])
        changed = source.selectExpr("id", "upper(text) AS text", "rest")
        writer = changed.writeStream.format("fluss").options(**job["options"]).option("table", table)
        queries.append(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())
    for query in queries:
        assert query.awaitTermination(QUERY_SECONDS), f"{query.id} did not end"


def read_back(spark: SparkSession, job: dict[str, Any], table: str) -> dict[str, Any]:
    """The result of a batch read of the table."""
    frame = spark.read.format("fluss").options(**job["options"]).load(table)
    parts = summed(frame).collect()
    return {"rows": sum(part["rows"] for part in parts), "ids": sum(part["ids"] for part in parts)}


def summed(frame: DataFrame) -> DataFrame:
    """One row per task, computed where the table is read."""

    def sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = ids = 0
        for batch in batches:
            rows += batch.num_rows
            ids += sum(batch.column("id").to_pylist())
        yield pa.RecordBatch.from_pylist([{"rows": rows, "ids": ids}])

    return frame.mapInArrow(sums, "rows long, ids long")


def busy_hosts(spark: SparkSession) -> list[str]:
    """The hosts of executors that got tasks of this program.

    Tasks may end without being counted as completed: of two concurrent attempts, the slower one is abandoned.
    """
    executors: Any = spark.sparkContext._jsc.sc().statusStore().executorList(False)
    found = [executors.apply(index) for index in range(executors.size())]
    busy = [each for each in found if each.id() != "driver" and each.totalTasks() > 0]
    return sorted({each.hostPort().rpartition(":")[0] for each in busy})


def pipeline(spark: SparkSession, job: dict[str, Any]) -> dict[str, Any]:
    """Run the whole pipeline."""
    write(spark, job)
    stream(spark, job)
    found = {table: read_back(spark, job, table) for table in (job["source"], *job["sinks"])}
    # Spark updates its store of executors with a delay, which is long on a busy machine.
    wait_until(
        lambda: len(busy_hosts(spark)) == job["hosts"], "every executor had tasks", seen=lambda: busy_hosts(spark)
    )
    return {**found, "hosts": busy_hosts(spark)}


def attempts(spark: SparkSession, job: dict[str, Any]) -> dict[str, Any]:
    """Run a write whose tasks misbehave."""
    folder = Path(job["folder"])

    def misbehaving(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass rows on. The first attempt of one task fails late; that of another one waits for a second attempt."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task, attempt = context.partitionId(), context.attemptNumber()
        (folder / f"attempt-{task}-{attempt}").touch()
        passed = 0
        for batch in batches:
            yield batch
            passed += batch.num_rows
        if attempt == 0 and task == FAILING:
            raise ValueError(f"fails after {passed} rows")
        if attempt == 0 and task == SLOW:
            deadline = time.monotonic() + SECOND_ATTEMPT_SECONDS  # an executor cannot import `tests.support`
            while not (folder / f"attempt-{task}-1").exists() and time.monotonic() < deadline:
                time.sleep(0.05)

    frame = spark.range(0, ATTEMPTED_ROWS, 1, ATTEMPTED_TASKS)
    rows = frame.mapInArrow(misbehaving, frame.schema)
    rows.write.format("fluss").mode("append").options(**job["options"]).save(job["table"])
    return {"written": job["table"]}


JOBS = {"pipeline": pipeline, "attempts": attempts}


def main(settings: dict[str, Any]) -> None:
    """Answer jobs until the input ends."""
    import fluss.spark

    spark = fluss.spark.session("cluster", settings["master"], settings["config"])
    print(json.dumps({"started": spark.version}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(JOBS[job["job"]](spark, job)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
