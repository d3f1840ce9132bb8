"""The plan of a scan, made before any I/O: columns, filter, limit. `TableScan` builds it, scanners execute it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from fluss.client.decode.bad_batches import BadBatch
    from fluss.values.predicates import Predicate


@dataclass(frozen=True)
class ScanPlan:
    """`projection` is the list of column positions in the order the user wants them; None means all columns.

    With `keep_stored`, large Arrow batches that need neither a filter nor other columns are returned as `StoredBatch`.
    With `on_skipped`, batches that cannot be read are skipped, and it is called for each (`scanner.bad_batches`);
    `skipping_advice` tells users how to enable that.
    """

    projection: tuple[int, ...] | None = None
    predicate: Predicate | None = None
    limit: int | None = None
    fixed_schema: bool = True
    keep_stored: bool = False
    on_skipped: Callable[[BadBatch], None] | None = None
    skipping_advice: str = "use on_bad_batch('skip') of a scan to skip such batches"


class Everything(NamedTuple):
    """A scan of all buckets: all rows, or those committed at `since_ms` or later."""

    since_ms: int | None = None
