"""The assignment of buckets to the tablets that lead them.

A pure function of ids, so nothing is stored, processes agree without communication, and the number of tablets may
change from one start to the next: all tablets share one data directory.
"""

from __future__ import annotations

from fluss.model.paths import TableBucket


def leader_of(bucket: TableBucket, tablet_count: int) -> int:
    """Return the server id of the tablet that leads `bucket`. Adjacent buckets of a table get different tablets."""
    assert tablet_count > 0
    return (bucket.table_id + (bucket.partition_id or 0) + bucket.bucket_id) % tablet_count
