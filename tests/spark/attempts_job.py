"""A Spark program whose tasks fail once and run twice: `python -m tests.spark.attempts_job <job as JSON>`.

It needs settings of its own (several attempts, speculation), so it is not run in the session of the tests. Every
attempt leaves a file in the folder of the job.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

PARTITIONS = 3
ROWS = 60_000
FAILING, SLOW = 1, 2
WAIT_SECONDS = 90.0


def misbehaving(batches: Iterator[pa.RecordBatch], folder: Path) -> Iterator[pa.RecordBatch]:
    """Pass rows on. The first attempt of one task fails late; that of another one waits for a second attempt."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    partition, attempt = context.partitionId(), context.attemptNumber()
    (folder / f"attempt-{partition}-{attempt}").touch()
    passed = 0
    for batch in batches:
        yield batch
        passed += batch.num_rows
    if attempt == 0 and partition == FAILING:
        raise ValueError(f"fails after {passed} rows")
    if attempt == 0 and partition == SLOW:
        deadline = time.monotonic() + WAIT_SECONDS
        while not (folder / f"attempt-{partition}-1").exists() and time.monotonic() < deadline:
            time.sleep(0.05)


def main(job: dict[str, Any]) -> None:
    """Write the same rows to every table."""
    import fluss.spark

    spark = fluss.spark.session("attempts", job["master"], job["settings"])
    for name, target in job["targets"].items():
        folder = Path(job["folder"]) / name
        folder.mkdir()
        frame = spark.range(0, ROWS, 1, PARTITIONS)

        def pass_on(batches: Iterator[pa.RecordBatch], folder: Path = folder) -> Iterator[pa.RecordBatch]:
            return misbehaving(batches, folder)

        rows = frame.mapInArrow(pass_on, frame.schema)
        rows.write.format("fluss").mode("append").options(**target).save()
        print(name, "is written", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
