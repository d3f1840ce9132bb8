"""How much of the waiting rows one micro-batch takes: at most so many rows and bytes, fairly shared by the buckets.

Fair means: every bucket gets the same share, and what a bucket does not need goes to the others. A limit is never
exceeded by rounding, with one exception: a batch that could take nothing at all, because one row is larger than the
limit, takes one row, so that a query always moves on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fluss.spark.stream.offsets import BucketKey, sorted_keys


@dataclass(frozen=True)
class Limits:
    """Per micro-batch; None means without limit."""

    max_rows: int | None = None
    max_bytes: int | None = None

    @property
    def is_set(self) -> bool:
        """Whether there is any."""
        return self.max_rows is not None or self.max_bytes is not None


def take(
    backlog_rows: Mapping[BucketKey, int], limits: Limits, bytes_per_row: Mapping[BucketKey, float], turn: int = 0
) -> dict[BucketKey, int]:
    """How many rows to take of each bucket.

    `turn` counts the batches: when there are fewer rows to give than buckets, the next batch begins with other buckets.

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
    # Those with the smallest need first: what they leave over is shared by the rest.
    for index, key in enumerate(sorted(waiting, key=lambda key: wanted[key] * cost_of_row[key])):
        share = min(wanted[key] * cost_of_row[key], left / (len(waiting) - index))
        left -= share  # not what is taken of it: rounding must not favour the buckets that come last
        shares[key] = min(wanted[key], int(share / cost_of_row[key]))
    rest = budget - sum(rows * cost_of_row[key] for key, rows in shares.items())
    _give_rest(shares, wanted, cost_of_row, rest, _turned(waiting, turn))
    return shares


def _give_rest(
    shares: dict[BucketKey, int],
    wanted: Mapping[BucketKey, int],
    cost_of_row: Mapping[BucketKey, float],
    left: float,
    order: Sequence[BucketKey],
) -> None:
    """What rounding left over: at most one row each."""
    for key in order:
        if shares[key] < wanted[key] and cost_of_row[key] <= left:
            shares[key] += 1
            left -= cost_of_row[key]
    if not any(shares.values()):
        shares[order[0]] = 1


def _turned(keys: list[BucketKey], turn: int) -> list[BucketKey]:
    start = turn % len(keys)
    return keys[start:] + keys[:start]
