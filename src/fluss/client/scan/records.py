"""The results of polls: `ScanRecords` and `RecordBatch`.

`ScanRecords` keeps decoded batches; `len`, `count`, `buckets` create no records. Flat iteration creates records and
drops them, so that memory does not grow with it. Access by index, slice or bucket makes a list once and keeps it. Not
thread-safe; one thread uses one result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, overload

from fluss.client.decode.log_rows import LogRows
from fluss.client.decode.materialize import ScanRecord
from fluss.model import paths
from fluss.values.basic import TableBucket

if TYPE_CHECKING:
    import pyarrow as pa


class RecordBatch:
    """An Arrow batch with its bucket and offsets."""

    __slots__ = ("_rows",)

    def __init__(self, rows: LogRows) -> None:
        self._rows = rows

    @property
    def batch(self) -> pa.RecordBatch:
        """The `pyarrow.RecordBatch`."""
        return self._rows.rows

    @property
    def bucket(self) -> TableBucket:
        """The bucket the rows are from."""
        return self._rows.bucket

    @property
    def base_offset(self) -> int:
        """Offset of the first row."""
        return self._rows.offset_of(0) if len(self._rows) else self._rows.base_offset

    @property
    def last_offset(self) -> int:
        """Offset of the last row."""
        return self._rows.last_offset

    @property
    def timestamp(self) -> int:
        """When the server wrote the rows, in milliseconds since 1970."""
        return self._rows.timestamp

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self._rows)

    @property
    def num_records(self) -> int:
        """Alias of `num_rows`."""
        return len(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return (
            f"RecordBatch(bucket={self.bucket}, base_offset={self.base_offset}, last_offset={self.last_offset}, "
            f"rows={len(self._rows)})"
        )


class ScanRecords:
    """Records of a poll, grouped by bucket: a sequence of records and a mapping of buckets."""

    __slots__ = ("_by_bucket", "_count", "_flat", "_lists")

    def __init__(self, batches: Sequence[LogRows] = ()) -> None:
        self._by_bucket: dict[TableBucket, list[LogRows]] = {}
        for batch in batches:
            self._by_bucket.setdefault(batch.bucket, []).append(batch)
        self._count = sum(map(len, batches))
        self._lists: dict[TableBucket, list[ScanRecord]] = {}
        self._flat: list[ScanRecord] | None = None

    def buckets(self) -> list[TableBucket]:
        """The buckets that have records here."""
        return list(self._by_bucket)

    def records(self, bucket: paths.TableBucket) -> list[ScanRecord]:
        """The records of one bucket in the order of the log; empty when it has none here."""
        return list(self._records(bucket))

    def records_by_buckets(self) -> dict[TableBucket, list[ScanRecord]]:
        """All records, by bucket."""
        return dict(self.items())

    def count(self) -> int:
        """Number of records in all buckets."""
        return self._count

    def is_empty(self) -> bool:
        """True if there are no records."""
        return not self._count

    def keys(self) -> list[TableBucket]:
        """Alias of `buckets()`."""
        return self.buckets()

    def values(self) -> Iterator[list[ScanRecord]]:
        """The records of each bucket, made one bucket at a time."""
        for bucket in self._by_bucket:
            yield self.records(bucket)

    def items(self) -> Iterator[tuple[TableBucket, list[ScanRecord]]]:
        """Pairs of bucket and records, made one bucket at a time."""
        for bucket in self._by_bucket:
            yield bucket, self.records(bucket)

    def _records(self, bucket: paths.TableBucket) -> list[ScanRecord]:
        known = self._lists.get(bucket)  # type: ignore[call-overload]  # equal to its public form
        if known is None:
            batches = self._by_bucket.get(bucket)  # type: ignore[call-overload]
            if batches is None:
                return []
            known = [record for batch in batches for record in batch.records()]
            self._lists[batches[0].bucket] = known
        return known  # type: ignore[no-any-return]

    def _all(self) -> list[ScanRecord]:
        if self._flat is None:
            self._flat = [record for bucket in self._by_bucket for record in self._records(bucket)]
        return self._flat

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, key: int, /) -> ScanRecord: ...
    @overload
    def __getitem__(self, key: slice, /) -> list[ScanRecord]: ...
    @overload
    def __getitem__(self, key: paths.TableBucket, /) -> list[ScanRecord]: ...
    def __getitem__(self, key: int | slice | paths.TableBucket, /) -> ScanRecord | list[ScanRecord]:
        if isinstance(key, paths.TableBucket):
            return self.records(key)
        if isinstance(key, slice):
            return self._all()[key]
        if isinstance(key, bool) or not hasattr(key, "__index__"):
            raise TypeError(f"index must be int, slice, or TableBucket, not {type(key).__name__}")
        if not -self._count <= key.__index__() < self._count:
            raise IndexError(f"index {key} out of range for ScanRecords of size {self._count}")
        return self._all()[key]

    def __contains__(self, bucket: object, /) -> bool:
        if not isinstance(bucket, paths.TableBucket):
            raise TypeError(f"ScanRecords can only contain a TableBucket, got {type(bucket).__name__}")
        return bucket in self._by_bucket

    def __iter__(self) -> Iterator[ScanRecord]:
        if self._flat is not None:
            return iter(self._flat)
        return chain.from_iterable(self._parts())

    def _parts(self) -> Iterator[Iterable[ScanRecord]]:
        for bucket, batches in self._by_bucket.items():
            known = self._lists.get(bucket)
            if known is not None:
                yield known
                continue
            for batch in batches:
                yield batch.records()

    def __repr__(self) -> str:
        return f"ScanRecords(records={self._count}, buckets={len(self._by_bucket)})"
