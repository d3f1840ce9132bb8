"""What a scan shall do, decided before any I/O: columns, filter, limit. `TableScan` builds it, scanners follow it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ScanPlan:
    """`projection` is the list of column positions in the order the user wants them; None means all columns."""

    projection: tuple[int, ...] | None = None
    predicate: Any = None
    limit: int | None = None
    fixed_schema: bool = True
