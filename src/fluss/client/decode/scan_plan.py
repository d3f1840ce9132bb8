"""What a scan shall do, decided before any I/O: columns, filter, limit. `TableScan` builds it, scanners follow it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class ScanPlan:
    """`projection` is the list of column positions in the order the user wants them; None means all columns.

    With `keep_stored`, large Arrow batches that need neither filter nor other columns come as `StoredBatch`. With
    `on_skipped`, batches that cannot be read are left out, and it is told of each (`scanner.bad_batches`);
    `skipping_advice` is how users ask for that.
    """

    projection: tuple[int, ...] | None = None
    predicate: Any = None
    limit: int | None = None
    fixed_schema: bool = True
    keep_stored: bool = False
    on_skipped: Any = None
    skipping_advice: str = "on_bad_batch('skip') of a scan leaves such batches out"


class Everything(NamedTuple):
    """A scan of all buckets: of all rows, or of those that were committed at `since_ms` or later."""

    since_ms: int | None = None
