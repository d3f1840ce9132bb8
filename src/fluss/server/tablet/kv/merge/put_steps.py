"""The merge of a large put in parts, each of which sees the results of the parts before it.

The result is exactly that of merging all records at once, since records are merged in order either way. Between two
parts other requests are served, and other puts to the bucket wait (`put_queue`). Nothing is changed before the last
part is merged, so a put that ends early has no effect. Between parts, two things may happen:

- the bucket may be closed, dropped or opened again: then the put fails;
- an earlier put to the bucket may fail to reach the disk and be taken back. The put in progress has seen the rows of
  that one, so it fails too, as it would have if it had been appended at once.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.kv.kv_bucket import KvBucket
from fluss.server.tablet.buckets.local_bucket import LocalBucket
from fluss.server.tablet.kv.merge.put_batch import MergeResult


class PartSizes(NamedTuple):
    """The number of records up to which a put is merged at once, and the size of a part for larger puts."""

    at_once: int
    part: int


# Rows that are stored as sent take two or three microseconds each. A default batch of clients, 2 MiB of rows of a
# hundred bytes, is merged at once, since parts cost a little more.
WHOLE_ROWS = PartSizes(24_576, 8_192)
# Rows that are decoded and merged take up to fifteen microseconds each.
MERGED_ROWS = PartSizes(4_096, 2_048)


class MergedParts:
    """The merged result of the parts of a put so far."""

    def __init__(self, local: LocalBucket, kv: KvBucket) -> None:
        self._local = local
        self._kv = kv
        self._failed_puts = kv.failed_puts
        self._columns: list[list[pa.Array]] = []
        self._change_types: list[bytes] = []
        self._entries: dict[bytes, bytes | None] = {}
        self._row_delta = 0

    def check(self) -> None:
        """Raise FlussError if the put cannot continue because of something that happened between two parts."""
        if self._local.opened_kv() is not self._kv:
            raise FlussError(f"{self._local.name} was closed during the put; retry it", ErrorCode.KV_STORAGE_EXCEPTION)
        self._kv.check_usable()
        if self._kv.failed_puts != self._failed_puts:
            text = f"{self._local.name}: an earlier put, on which this one depends, could not be written; retry it"
            raise FlussError(text, ErrorCode.KV_STORAGE_EXCEPTION)

    def old_values(self, keys: list[bytes], array: pa.Array | None = None) -> list[bytes | None]:
        """The values that the next part replaces: those of earlier parts, else those of `KvBucket.old_values`."""
        entries = self._entries
        if entries.keys().isdisjoint(keys):
            return self._kv.old_values(keys, array)
        values = [entries.get(key) for key in keys]
        unknown = [place for place, key in enumerate(keys) if key not in entries]
        for place, value in zip(unknown, self._kv.old_values([keys[place] for place in unknown]), strict=True):
            values[place] = value
        return values

    def add(self, outcome: MergeResult) -> None:
        """Add the result of the next part."""
        self._columns.append(outcome.columns)
        self._change_types.append(outcome.change_types)
        self._entries.update(outcome.entries)
        self._row_delta += outcome.row_delta

    def joined(self) -> MergeResult:
        """The results of all parts as one."""
        columns = [pa.concat_arrays(parts) for parts in zip(*self._columns, strict=True)]
        return MergeResult(columns, b"".join(self._change_types), self._entries, self._row_delta)
