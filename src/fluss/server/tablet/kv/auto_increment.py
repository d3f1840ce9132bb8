"""Numbers for auto-increment columns: unique in the table, rising in a bucket, with gaps.

Each bucket takes a block of numbers from the table's counter in the catalog, in one transaction that is on disk before
the first of them is used. What is left of a block when the bucket is closed, or was used by a put that failed, is lost.
Owned by the loop thread.
"""

from __future__ import annotations

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.server.catalog import CatalogStore
from fluss.server.tablet.kv.rules import KvRules

_MAX_OF_ROOT = {"INTEGER": 2**31 - 1, "BIGINT": 2**63 - 1}
MAX_REMEMBERED_BUCKETS = 100_000


class AutoIncrement:
    """The blocks of all buckets of a tablet."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store
        self._blocks: dict[TableBucket, tuple[int, int]] = {}

    def next_number(self, rules: KvRules, bucket: TableBucket) -> int:
        """The next number of a bucket; FlussError when the column cannot hold it."""
        number, end = self._blocks.get(bucket, (0, 0))
        if number == end:
            if len(self._blocks) >= MAX_REMEMBERED_BUCKETS:
                self._blocks.clear()
            count = rules.auto_increment_block
            number = self._store.allocate_row_numbers(bucket.table_id, count)
            end = number + count
        self._blocks[bucket] = (number + 1, end)
        position = rules.auto_increment_position
        assert position is not None, "only tables with a numbered column ask for numbers"
        column = rules.entry.schema.columns[position]
        if number > _MAX_OF_ROOT[column.data_type.root]:
            text = f"{rules.entry.path}: the numbers of column {column.name} ({column.data_type}) are used up"
            raise FlussError(text, ErrorCode.UNKNOWN_SERVER_ERROR)
        return number
