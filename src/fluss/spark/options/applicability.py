"""Every option of `format("fluss")`, and the reads or writes that it applies to.

An option that would have no effect is refused, just as an unknown one is: a user who gives it expects an effect. This
rule is for the options of one read or write. Defaults, which the session, a catalog or `fluss.spark.attach` gives to
many reads and writes, may apply to only some of them (`fluss.spark.options.session_options.DEFAULTS_OPTION`).
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

# In the spelling of the documentation; Spark passes the names in lower case.
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
    "scan.startup.mode": _READS,  # batch reads ignore this and the next one, as in Apache Fluss
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
    "checkpointLocation": _STREAMING_WRITES,  # this and the next one are read by Spark
    "queryName": _STREAMING_WRITES,
    "rowKindColumn": _WRITES,
    "delivery": _WRITES,
    "transaction": _BATCH_WRITES,
    "transactionBatch": _BATCH_WRITES,
    "onExtraDigits": _WRITES,
    "on_extra_digits": _WRITES,
}


def check_direction(said: Collection[str], direction: Direction) -> None:
    """Raise `FlussError` if one of the options in `said`, which are in lower case, has no effect on `direction`."""
    for name, directions in OPTIONS.items():
        if name.lower() in said and direction not in directions:
            raise FlussError(
                f"option {name} is for {' and '.join(directions)} and has no effect on {direction}: leave it out"
            )
