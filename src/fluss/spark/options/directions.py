"""Every option of `format("fluss")`, and the reads or writes that it is for.

An option that would change nothing is refused, as an unknown one is: whoever gives it expects something of it. That is
for what is said of one read or write. What is said for many at once, by the session, a catalog or `fluss.spark.attach`,
may be for some of them only (`fluss.spark.options.session_options.DEFAULTS_OPTION`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from fluss.errors import FlussError

Direction = Literal["batch reads", "streaming reads", "batch writes", "streaming writes"]

_BATCH_READS: tuple[Direction, ...] = ("batch reads",)
_STREAMING_READS: tuple[Direction, ...] = ("streaming reads",)
_READS: tuple[Direction, ...] = (*_BATCH_READS, *_STREAMING_READS)
_BATCH_WRITES: tuple[Direction, ...] = ("batch writes",)
_STREAMING_WRITES: tuple[Direction, ...] = ("streaming writes",)
_WRITES: tuple[Direction, ...] = (*_BATCH_WRITES, *_STREAMING_WRITES)
_ALL: tuple[Direction, ...] = (*_READS, *_WRITES)

# With their spelling for people; Spark lower-cases what users write.
OPTIONS: dict[str, tuple[Direction, ...]] = {
    "bootstrap.servers": _ALL,
    "bootstrapServers": _ALL,
    "table": _ALL,
    "path": _ALL,
    "columns": _ALL,
    "limit": _BATCH_READS,
    "mode": _READS,
    "nanosAs": _ALL,
    "timeZone": _READS,
    "start": _READS,
    "starting": _READS,
    "end": _BATCH_READS,
    "scan.startup.mode": _READS,  # batch reads do not look at them, as those of Apache Fluss do not
    "scan.startup.timestamp": _READS,
    "scan.incremental.start.timestamp": _BATCH_READS,
    "scan.incremental.end.timestamp": _BATCH_READS,
    "scan.maxRecordsPerPartition": _READS,
    "scan.maxBytesPerPartition": _BATCH_READS,
    "scan.poll.timeout": _ALL,
    "onBadBatch": _READS,
    "on_bad_batch": _READS,
    "read.optimized": _BATCH_READS,
    "read_optimized": _BATCH_READS,
    "union": _READS,
    "snapshot_id": _BATCH_READS,
    "as_of": _BATCH_READS,
    "maxRowsPerTrigger": _STREAMING_READS,
    "maxBytesPerTrigger": _STREAMING_READS,
    "failOnDataLoss": _STREAMING_READS,
    "cursor": _STREAMING_READS,
    "checkpointLocation": _STREAMING_WRITES,  # this and the next are for Spark
    "queryName": _STREAMING_WRITES,
    "rowKindColumn": _WRITES,
    "delivery": _WRITES,
    "transaction": _BATCH_WRITES,
    "transactionBatch": _BATCH_WRITES,
    "onExtraDigits": _WRITES,
    "on_extra_digits": _WRITES,
}


def check_direction(said: Collection[str], direction: Direction) -> None:
    """`FlussError` for the first of these options, in lower case, that is for others than these reads or writes."""
    for name, directions in OPTIONS.items():
        if name.lower() in said and direction not in directions:
            raise FlussError(
                f"option {name} is for {' and '.join(directions)}; it changes nothing in {direction}: leave it out"
            )
