"""Computes where the next micro-batch of a query ends. The driver asks the servers; the functions here are pure.

A batch is the difference of two `StreamOffsets`. Buckets that are only in the end are new and start at offset 0;
buckets that are only in the start were dropped and are not read. The state of a primary-key table (start `full`) is
read first, in separate batches, and before it the files of a lake. The end of the first batch also contains where that
batch begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fluss.spark.stream.data_loss import Loss
from fluss.spark.stream.limits import Limits, take
from fluss.spark.stream.offsets import BucketKey, LakeProgress, StreamOffsets, sorted_keys

FIRST_OFFSET = 0
DEFAULT_ROW_BYTES = 100.0
"""Assumed for buckets whose row size is unknown."""


@dataclass(frozen=True)
class TableView:
    """The log of every bucket at one moment. `earliest` may lack buckets for which it was not requested."""

    latest: Mapping[BucketKey, int]
    earliest: Mapping[BucketKey, int] = field(default_factory=dict)

    def first_readable(self, key: BucketKey, position: int) -> int:
        """The position, or the beginning of the log if that is greater."""
        return max(position, self.earliest.get(key, position))


def find_losses(start: StreamOffsets, view: TableView, last_seen: Mapping[BucketKey, int]) -> list[Loss]:
    """The rows that can no longer be read. `last_seen` has the last known ends of logs, even of dropped partitions."""
    losses = []
    for key in sorted_keys(start.positions.keys() | view.latest.keys()):
        position = start.positions.get(key, FIRST_OFFSET)
        if key not in view.latest:
            seen = last_seen.get(key)
            was_behind = key in start.behind if seen is None else seen > position
            if was_behind or key in start.unread_state:
                losses.append(Loss("dropped", key, position, seen))
        elif key in start.unread_state:
            continue  # state is not read from the log
        elif view.first_readable(key, position) > position:
            losses.append(Loss("expired", key, position, view.earliest[key]))
        elif view.latest[key] < position:
            losses.append(Loss("receded", key, position, view.latest[key]))
    return losses


def waiting_rows(start: StreamOffsets, view: TableView) -> dict[BucketKey, int]:
    """The number of rows in each bucket that the query has not read yet."""
    rows = {}
    for key, latest in view.latest.items():
        position = view.first_readable(key, start.positions.get(key, FIRST_OFFSET))
        rows[key] = max(0, latest - position)
    return rows


def advance(
    start: StreamOffsets,
    view: TableView,
    limits: Limits,
    row_bytes: Mapping[BucketKey, float],
    turn: int = 0,
    lake_files: Sequence[tuple[int, int]] = (),
) -> StreamOffsets:
    """The end of the next batch; `start` itself when there is nothing to read.

    `lake_files` has rows and bytes of each file of the snapshot that the query begins with, while it reads them.
    """
    if start.lake is not None:
        return first_end(start, _lake_end(start, start.lake, view, limits, lake_files))
    end = _end(start, view, limits, row_bytes, turn)
    return start if end is None else first_end(start, end)


def first_end(start: StreamOffsets, end: StreamOffsets) -> StreamOffsets:
    """Return `end`; if `start` is the beginning of the query, with `start` stored in it (`begin`)."""
    return replace(end, is_initial=False, begin=start if start.is_initial else None)


def _end(
    start: StreamOffsets, view: TableView, limits: Limits, row_bytes: Mapping[BucketKey, float], turn: int
) -> StreamOffsets | None:
    known = {key: start.positions.get(key, FIRST_OFFSET) for key in view.latest}
    pending = start.unread_state & known.keys()
    if pending:
        unread = pending - next_state(start, limits, pending)
        state_time_ms = start.state_time_ms if unread else None
        behind = _behind(known, view)
        return replace(start, positions=known, unread_state=unread, state_time_ms=state_time_ms, behind=behind)
    backlog = waiting_rows(start, view)
    sizes = {key: max(row_bytes.get(key, DEFAULT_ROW_BYTES), 1.0) for key in backlog}
    taken = take(backlog, limits, sizes, turn)
    positions = {
        key: view.first_readable(key, position) + taken[key] if taken[key] else position
        for key, position in known.items()
    }
    if positions == start.positions:
        return None
    return replace(
        start, positions=positions, unread_state=frozenset(), state_time_ms=None, behind=_behind(positions, view)
    )


def _lake_end(
    start: StreamOffsets, lake: LakeProgress, view: TableView, limits: Limits, files: Sequence[tuple[int, int]]
) -> StreamOffsets:
    """The end of a batch of lake files: as many as fit, at least one."""
    read, rows, size = lake.read, 0, 0
    for file_rows, file_bytes in files[lake.read :]:
        rows, size = rows + file_rows, size + file_bytes
        is_too_much = (limits.max_rows is not None and rows > limits.max_rows) or (
            limits.max_bytes is not None and size > limits.max_bytes
        )
        if is_too_much and read > lake.read:
            break
        read += 1
    known = {key: start.positions.get(key, FIRST_OFFSET) for key in view.latest}
    unread = start.unread_state & known.keys()
    return replace(
        start,
        positions=known,
        unread_state=unread,
        state_time_ms=start.state_time_ms if unread else None,
        behind=_behind(known, view),
        lake=None if read >= lake.files else replace(lake, read=read),
    )


def _behind(positions: Mapping[BucketKey, int], view: TableView) -> frozenset[BucketKey]:
    return frozenset(key for key, position in positions.items() if position < view.latest[key])


def next_state(start: StreamOffsets, limits: Limits, pending: frozenset[BucketKey]) -> frozenset[BucketKey]:
    """The buckets whose state the next batch reads: all, or with a limit as many as certainly fit, at least one.

    A bucket has at most as many rows as its log had changes.
    """
    if not limits.is_set:
        return pending
    most = limits.max_rows if limits.max_rows is not None else 0
    chosen: list[BucketKey] = []
    rows = 0
    for key in sorted_keys(pending):
        rows += start.positions[key]
        if chosen and rows > most:
            break
        chosen.append(key)
    return frozenset(chosen)


def receded_to(start: StreamOffsets, losses: list[Loss]) -> StreamOffsets:
    """The offsets to continue from if logs end before the reached position: the ends of those logs."""
    back = {loss.key: loss.available for loss in losses if loss.kind == "receded" and loss.available is not None}
    return replace(start, positions={**start.positions, **back}) if back else start


def lag(end: StreamOffsets, view: TableView) -> dict[BucketKey, int]:
    """The number of rows in every bucket after the end of a batch."""
    return {key: max(0, latest - end.positions.get(key, FIRST_OFFSET)) for key, latest in view.latest.items()}
