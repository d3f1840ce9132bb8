"""Numbers for auto-increment columns: unique in the table, increasing in a bucket, with gaps.

Each bucket takes blocks of numbers from the table's counter and reserves a few thousand of its block at a time; both
are on disk in the catalog before the first number is used (`RowNumberRecords`). After a restart a bucket continues with
its block: with the next number if the tablet was stopped, behind the last reservation if it was killed. Numbers used by
a put that failed are lost. Owned by the loop thread.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.server.catalog import CatalogStore
from fluss.server.tablet.buckets.kv_rules import KvRules

_logger = logging.getLogger(__name__)

_MAX_OF_ROOT = {"INTEGER": 2**31 - 1, "BIGINT": 2**63 - 1}
MAX_REMEMBERED_BUCKETS = 100_000
# A kill loses less than this many numbers; a reservation costs as much time as merging a few hundred rows.
NUMBERS_PER_RESERVATION = 4_096


class AutoIncrement:
    """The reserved numbers of all buckets of a tablet."""

    def __init__(self, store: CatalogStore) -> None:
        self._records = store.row_numbers
        self._reserved: dict[TableBucket, tuple[int, int]] = {}

    def next_number(self, rules: KvRules, bucket: TableBucket) -> int:
        """The next number of a bucket; FlussError if the column cannot hold it."""
        number, end = self._reserved.get(bucket, (0, 0))
        if number == end:
            if len(self._reserved) >= MAX_REMEMBERED_BUCKETS:
                self.give_back()
            number, end = self._records.reserve(bucket, NUMBERS_PER_RESERVATION, rules.auto_increment_block)
        self._reserved[bucket] = (number + 1, end)
        position = rules.auto_increment_position
        assert position is not None, "only tables with a numbered column ask for numbers"
        column = rules.entry.schema.columns[position]
        if number > _MAX_OF_ROOT[column.data_type.root]:
            text = (
                f"auto-increment column {column.name} of {rules.entry.path} has no numbers left: {number} is larger "
                f"than the maximum of {column.data_type}; copy the rows into a table with a wider type"
            )
            raise FlussError(text, ErrorCode.UNKNOWN_SERVER_ERROR)
        return number

    def forget(self, dropped: Collection[TableBucket]) -> None:
        """Drop the reserved numbers of buckets that are gone."""
        for bucket in dropped:
            self._reserved.pop(bucket, None)

    def give_back(self) -> None:
        """Return all unused numbers to the catalog, for instance because the tablet stops."""
        unused = {bucket: rest for bucket, rest in self._reserved.items() if rest[0] < rest[1]}
        self._reserved.clear()
        if not unused:
            return
        try:
            self._records.give_back(unused)
        except FlussError as error:
            _logger.warning("cannot return unused numbers of auto-increment columns, they are lost: %s", error.message)
