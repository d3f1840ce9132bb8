"""Which tablet leads which bucket.

A pure function of ids, so nothing is stored, every process agrees without talking, and the number of tablets may change
from one start to the next: all tablets share one data directory.
"""

from __future__ import annotations

from fluss.model.paths import TableBucket


def leader_of(bucket: TableBucket, tablet_count: int) -> int:
    """Server id of the tablet that leads `bucket`: neighbours in a table go to different tablets."""
    assert tablet_count > 0
    return (bucket.table_id + (bucket.partition_id or 0) + bucket.bucket_id) % tablet_count
