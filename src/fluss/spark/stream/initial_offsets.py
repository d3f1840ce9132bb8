"""The start of a new query, from the option `start`, by default `full`.

| start | log table | primary-key table |
|---|---|---|
| full (default) | all existing rows | the current state, then all changes after it |
| earliest | all existing rows | the changelog from its beginning |
| latest | only new rows | only new changes |
| timestamp:T | rows since that time | changes since that time |
| offsets | from these offsets; buckets without one from their beginning | the same |

Partitions that are created later are always read from their beginning. With `full`, a query on a table with a snapshot
in its lake begins with the snapshot, and continues with the log after it (`lake_start`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from fluss.errors import ErrorCode, FlussError
from fluss.spark.options.log_positions import Position
from fluss.spark.stream.offsets import BucketKey, StreamOffsets

DEFAULT_START = Position("full")


class Table(Protocol):
    """The parts of `TableWatch` that this module needs."""

    @property
    def table_id(self) -> int: ...

    @property
    def partitions(self) -> Mapping[int | None, str | None]: ...

    def look(self, *, now: bool = False) -> None: ...

    def latest(self) -> dict[BucketKey, int]: ...

    def earliest(self) -> dict[BucketKey, int]: ...

    def at(self, timestamp_ms: int) -> dict[BucketKey, int]: ...


def starting_offsets(start: Position | None, table: Table, *, has_primary_key: bool) -> StreamOffsets:
    """Return the offsets at which a query without a checkpoint begins."""
    return replace(_resolved(start, table, has_primary_key), is_initial=True)


def _resolved(start: Position | None, table: Table, has_primary_key: bool) -> StreamOffsets:
    table.look(now=True)
    position = start or DEFAULT_START
    if position.kind == "full" and has_primary_key:
        latest = table.latest()
        pending = frozenset(key for key, offset in latest.items() if offset > 0)  # a bucket without changes has no rows
        return StreamOffsets(table.table_id, latest, pending, _now_ms() if pending else None)
    if position.kind == "latest":
        return StreamOffsets(table.table_id, table.latest())
    if position.kind == "timestamp":
        assert position.timestamp_ms is not None
        offsets = table.at(max(position.timestamp_ms, 0))
        return StreamOffsets(table.table_id, offsets, since_ms=position.timestamp_ms)
    earliest = table.earliest()
    if position.kind == "offsets":
        return StreamOffsets(table.table_id, _explicit(position, table, earliest))
    return StreamOffsets(table.table_id, earliest)


def _explicit(position: Position, table: Table, earliest: Mapping[BucketKey, int]) -> dict[BucketKey, int]:
    keys = {(table.partitions[partition_id], bucket): (partition_id, bucket) for partition_id, bucket in earliest}
    for name, bucket, _ in position.offsets:
        if (name, bucket) not in keys:
            where = f"bucket {bucket}" if name is None else f"bucket {bucket} in partition {name!r}"
            known = sorted({str(partition) for partition, _ in keys if partition is not None})
            form = f"its partitions are {', '.join(known)}" if known else "it has no partitions"
            count = 1 + max((number for _, number in keys), default=-1)
            raise FlussError(
                f"option start has an offset for {where}, which does not exist: {form}, with {count} buckets each"
            )
    ends = table.latest()
    chosen = dict(earliest)
    for name, bucket, offset in position.offsets:
        key = keys[name, bucket]
        # failOnDataLoss handles an offset before the first row; one after the last row can never be right.
        if offset > ends.get(key, offset):
            of_partition = "" if name is None else f" of partition {name!r}"
            raise FlussError(
                f"option start has offset {offset} for bucket {bucket}{of_partition}, but its log ends at {ends[key]}: "
                "give an offset that is not after the end",
                ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION,
            )
        chosen[key] = offset
    return chosen


def _now_ms() -> int:
    return int(time.time() * 1000)
