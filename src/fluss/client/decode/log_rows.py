"""Consecutive decoded rows of one bucket, not yet converted to Python objects. Immutable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from fluss.client.decode.materialize import ScanRecord, UnreadableRecord, change_type_list, column_values, row_maker
from fluss.errors import FlussError
from fluss.values.basic import ChangeType, TableBucket

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss.codec.rows.varint import Int64s

# Limits the rows that exist as Python objects during iteration over a large batch.
PAGE_ROWS = 1_024
PAGED_FROM_ROWS = 10_000
UPDATE_BEFORE = ChangeType.UpdateBefore


class LogRows:
    """`rows` is an Arrow record batch; row i has offset `base_offset + i`, or `offsets[i]` if rows are missing."""

    __slots__ = ("base_offset", "bucket", "change_types", "offsets", "rows", "timestamp")

    def __init__(
        self,
        bucket: TableBucket,
        rows: pa.RecordBatch,
        base_offset: int,
        timestamp: int,
        change_types: bytes | None = None,
        offsets: Int64s | None = None,
    ) -> None:
        self.bucket = bucket
        self.rows = rows
        self.base_offset = base_offset
        self.timestamp = timestamp
        self.change_types = change_types
        self.offsets = offsets

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def last_offset(self) -> int:
        """Offset of the last row."""
        return self.offset_of(len(self) - 1)

    def offset_of(self, index: int) -> int:
        """Offset of a row."""
        return self.base_offset + index if self.offsets is None else int(self.offsets[index])

    def slice(self, start: int, stop: int) -> LogRows:
        """Rows from `start` up to `stop`, without copying."""
        if start == 0 and stop >= len(self):
            return self
        return LogRows(
            self.bucket,
            self.rows.slice(start, stop - start),
            self.offset_of(start) if start < len(self) else self.base_offset + start,
            self.timestamp,
            None if self.change_types is None else self.change_types[start:stop],
            None if self.offsets is None else self.offsets[start:stop],
        )

    def index_of(self, offset: int) -> int:
        """The number of rows before an offset."""
        if self.offsets is None:
            return min(max(offset - self.base_offset, 0), len(self))
        return int(np.searchsorted(self.offsets, offset))

    def cut_at(self, limit: int) -> int:
        """`limit`, or one more: the old and the new row of an update stay together."""
        if self.change_types is not None and 0 < limit < len(self) and self.change_types[limit - 1] == UPDATE_BEFORE:
            return limit + 1
        return limit

    def records(self) -> Iterator[ScanRecord]:
        """Every row as an object; large batches in pages."""
        count = len(self)
        if count < PAGED_FROM_ROWS:
            return self._page(0, count)
        starts = range(0, count, PAGE_ROWS)
        return chain.from_iterable(self._page(start, min(start + PAGE_ROWS, count)) for start in starts)

    def _page(self, start: int, stop: int) -> Iterator[ScanRecord]:
        part = self.rows if stop - start == len(self) else self.rows.slice(start, stop - start)
        plain, listed = row_maker(tuple(part.schema.names))
        try:
            columns = [column_values(column) for column in part.columns]
        except FlussError as error:
            return self._around_unreadable(start, stop, error)
        if self.offsets is None and self.change_types is None:
            return plain(self.base_offset + start, self.timestamp, ChangeType.AppendOnly, columns)
        if self.offsets is None:
            offsets: Sequence[int] = range(self.base_offset + start, self.base_offset + stop)
        else:
            offsets = self.offsets[start:stop].tolist()
        if self.change_types is None:
            kinds = [ChangeType.AppendOnly] * (stop - start)
        else:
            kinds = change_type_list(self.change_types[start:stop])
        return listed(offsets, self.timestamp, kinds, columns)

    def _around_unreadable(self, start: int, stop: int, error: FlussError) -> Iterator[ScanRecord]:
        """Yield a page with values that Python cannot hold: it is halved until such a row is alone."""
        if stop - start > 1:
            middle = (start + stop) // 2
            return chain(self._page(start, middle), self._page(middle, stop))
        kind = (
            ChangeType.AppendOnly if self.change_types is None else change_type_list(self.change_types[start:stop])[0]
        )
        offset = self.offset_of(start)
        failure = FlussError(f"offset {offset} of {self.bucket}: {error.message}", error.error_code)
        return iter([UnreadableRecord(offset, self.timestamp, kind, failure)])
