"""The number of waiting rows that a micro-batch takes: limited in rows and bytes, shared fairly by the buckets.

Fair means that every bucket gets the same share, and that the unused part of a share goes to the others. Rounding never
exceeds a limit, with one exception: a batch that could take nothing, because one row is larger than the limit, takes
one row, so that a query always advances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fluss.spark.stream.offsets import BucketKey, sorted_keys


@dataclass(frozen=True)
class Limits:
    """The limits of a micro-batch; None means no limit."""

    max_rows: int | None = None
    max_bytes: int | None = None

    @property
    def is_set(self) -> bool:
        """True if there is a limit."""
        return self.max_rows is not None or self.max_bytes is not None


def take(
    backlog_rows: Mapping[BucketKey, int], limits: Limits, bytes_per_row: Mapping[BucketKey, float], turn: int = 0
) -> dict[BucketKey, int]:
    """The number of rows to take from each bucket.

    `turn` counts the batches: if a limit allows fewer rows than buckets, the next batch begins with other buckets.

    >>> take({(None, 0): 100, (None, 1): 4}, Limits(max_rows=10), {})
    {(None, 0): 6, (None, 1): 4}
    """
    taken = dict(backlog_rows)
    if limits.max_rows is not None:
        taken = _share(taken, dict.fromkeys(taken, 1.0), limits.max_rows, turn)
    if limits.max_bytes is not None:
        taken = _share(taken, bytes_per_row, limits.max_bytes, turn)
    return taken


def _share(
    wanted: Mapping[BucketKey, int], cost_of_row: Mapping[BucketKey, float], budget: float, turn: int
) -> dict[BucketKey, int]:
    shares = dict.fromkeys(wanted, 0)
    waiting = [key for key in sorted_keys(wanted) if wanted[key] > 0]
    if not waiting:
        return shares
    if sum(wanted[key] * cost_of_row[key] for key in waiting) <= budget:
        return dict(wanted)
    left = float(budget)
    # Buckets with the smallest need first: the rest share what these do not use.
    for index, key in enumerate(sorted(waiting, key=lambda key: wanted[key] * cost_of_row[key])):
        share = min(wanted[key] * cost_of_row[key], left / (len(waiting) - index))
        left -= share  # the whole share, not the rows taken: rounding must not favour the last buckets
        shares[key] = min(wanted[key], int(share / cost_of_row[key]))
    rest = budget - sum(rows * cost_of_row[key] for key, rows in shares.items())
    _distribute_rest(shares, wanted, cost_of_row, rest, _turned(waiting, turn))
    return shares


def _distribute_rest(
    shares: dict[BucketKey, int],
    wanted: Mapping[BucketKey, int],
    cost_of_row: Mapping[BucketKey, float],
    left: float,
    order: Sequence[BucketKey],
) -> None:
    """Distribute what rounding left over: at most one row per bucket."""
    for key in order:
        if shares[key] < wanted[key] and cost_of_row[key] <= left:
            shares[key] += 1
            left -= cost_of_row[key]
    if not any(shares.values()):
        shares[order[0]] = 1


def _turned(keys: list[BucketKey], turn: int) -> list[BucketKey]:
    start = turn % len(keys)
    return keys[start:] + keys[:start]
