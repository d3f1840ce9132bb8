"""The buckets that a request asks about: each once, and no more than the table has.

A request of 4 MB can name one bucket millions of times. Clients name each once, so naming one again means nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.server.catalog import TableEntry
from fluss.server.tablet.buckets.registry import BucketRegistry

# Of a table that this tablet does not know: dropped just now, or never there. Each bucket gets its own error then.
MAX_BUCKETS_OF_UNKNOWN_TABLE = 1_000


def bucket_of(table_id: int, item: Any) -> TableBucket:
    """The bucket of an entry with `bucket_id` and an optional `partition_id`."""
    return TableBucket(table_id, item.partition_id if item.HasField("partition_id") else None, item.bucket_id)


def most_buckets(entry: TableEntry | None) -> int:
    """How many buckets of a table a request may name."""
    if entry is None:
        return MAX_BUCKETS_OF_UNKNOWN_TABLE
    # Partitions that were dropped a moment ago may still be asked for.
    return entry.bucket_count * max(1, len(entry.partitions)) + MAX_BUCKETS_OF_UNKNOWN_TABLE


def asked_buckets(registry: BucketRegistry, table_id: int, named: Iterable[TableBucket]) -> list[TableBucket]:
    """The named buckets in order, each once; FlussError 21 when the table cannot have so many."""
    buckets = list(dict.fromkeys(named))
    if len(buckets) > most_buckets(registry.table(table_id)):
        raise FlussError(
            f"{len(buckets)} buckets are asked for, which table id {table_id} cannot have; refresh the metadata",
            ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION,
        )
    return buckets
