"""The buckets that a request names: each once, and no more than the table can have.

A request of 4 MB can name one bucket millions of times. Clients name each bucket once, so repetitions are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.server.catalog import TableEntry
from fluss.server.tablet.buckets.registry import BucketRegistry

# For a table that this tablet does not know, because it was just dropped or never existed. Each bucket gets an error.
MAX_BUCKETS_OF_UNKNOWN_TABLE = 1_000


def bucket_of(table_id: int, item: Any) -> TableBucket:
    """The bucket of an entry with `bucket_id` and an optional `partition_id`."""
    return TableBucket(table_id, item.partition_id if item.HasField("partition_id") else None, item.bucket_id)


def max_buckets(entry: TableEntry | None) -> int:
    """The number of buckets of a table that a request may name."""
    if entry is None:
        return MAX_BUCKETS_OF_UNKNOWN_TABLE
    # Requests may still name partitions that were just dropped.
    return entry.bucket_count * max(1, len(entry.partitions)) + MAX_BUCKETS_OF_UNKNOWN_TABLE


def requested_buckets(registry: BucketRegistry, table_id: int, named: Iterable[TableBucket]) -> list[TableBucket]:
    """The named buckets in order, each once; FlussError 21 if the table cannot have that many."""
    buckets = list(dict.fromkeys(named))
    if len(buckets) > max_buckets(registry.table(table_id)):
        raise FlussError(
            f"the request names {len(buckets)} buckets, more than table id {table_id} can have; refresh the metadata",
            ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION,
        )
    return buckets
