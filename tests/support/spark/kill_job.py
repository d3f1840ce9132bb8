"""The Spark program of the kill rounds, which runs until it is killed.

    python -m tests.support.spark.kill_job <job as JSON>

One table is streamed into a log table and into a primary-key table, by a query each. The queries start when a line
arrives: starting Spark takes longer than everything else, so a program can be prepared while another one still runs.
A query that ends by itself ends the program with its error.
"""

from __future__ import annotations

import json
import sys
from typing import Any

# Two tasks at a time, and a task whose worker dies is retried: Spark in one process does not do that by default.
MASTER = "local[2,8]"
# Short enough to be killed in every state; without a pause empty batches would keep the machine busy.
TRIGGER = "300 milliseconds"
COLUMNS = ("id", "upper(text) AS text", "id % 7 AS rest")


def main(job: dict[str, Any]) -> None:
    """Start the queries, each with its own checkpoint."""
    import fluss.spark

    spark = fluss.spark.session("kill rounds", MASTER, job["settings"])
    if not sys.stdin.readline():  # the parent process is gone
        return
    for table, checkpoint in job["sinks"].items():
        rows = spark.readStream.format("fluss").option("start", "earliest").load(job["source"]).selectExpr(*COLUMNS)
        writer = rows.writeStream.format("fluss").option("table", table).option("checkpointLocation", checkpoint)
        writer.trigger(processingTime=TRIGGER).start()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
