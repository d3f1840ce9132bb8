"""How a read uses the lake of a table. Plain values, checked when they are made."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from fluss.errors import FlussError


@dataclass(frozen=True)
class LakeOptions:
    """How one read uses the lake.

    `union`: True reads lake and log, False reads without the lake, None chooses the cheapest way that finds every row.
    With `read_optimized`, a `snapshot_id` or a `timestamp_ms` only the lake is read: its current state, that snapshot,
    or its state at that time.
    """

    union: bool | None = None
    read_optimized: bool = False
    snapshot_id: int | None = None
    timestamp_ms: int | None = None

    @property
    def is_time_travel(self) -> bool:
        """True if the read is of an older state."""
        return self.snapshot_id is not None or self.timestamp_ms is not None

    @property
    def is_lake_only(self) -> bool:
        """True if the log is not read."""
        return self.read_optimized or self.is_time_travel


DEFAULT_LAKE_OPTIONS = LakeOptions()


def lake_options(
    union: bool | None = None,
    read_optimized: bool = False,
    lake_snapshot: int | None = None,
    as_of: int | datetime.datetime | None = None,
) -> LakeOptions:
    """Check the options of a user; a time is milliseconds since 1970 or an aware datetime."""
    if lake_snapshot is not None and (isinstance(lake_snapshot, bool) or not isinstance(lake_snapshot, int)):
        raise FlussError(f"lake_snapshot must be the id of a snapshot, a whole number, got {lake_snapshot!r}")
    if lake_snapshot is not None and as_of is not None:
        raise FlussError("lake_snapshot and as_of both choose a snapshot of the lake: give only one of them")
    options = LakeOptions(union, bool(read_optimized), lake_snapshot, _milliseconds(as_of))
    if options.is_lake_only and union is not None:
        raise FlussError(
            "union is for reads of lake and log, but read_optimized, lake_snapshot and as_of read the lake: "
            "leave one of them out"
        )
    return options


def _milliseconds(as_of: int | datetime.datetime | None) -> int | None:
    if as_of is None:
        return None
    if isinstance(as_of, datetime.datetime):
        if as_of.tzinfo is None:
            raise FlussError(f"as_of must be a datetime with a time zone, got {as_of!r}")
        return int(as_of.timestamp() * 1000)
    if isinstance(as_of, bool) or not isinstance(as_of, int):
        raise FlussError(f"as_of must be a whole number of milliseconds or an aware datetime, got {as_of!r}")
    return as_of
