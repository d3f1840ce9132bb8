"""The merge of a large put in parts, each of which meets what the parts before it left.

Gives exactly what a merge of all records at once gives: records are taken in order either way. Between two parts other
requests are served, and puts of the bucket wait (`put_queue`). Nothing is changed before the last part is merged, so
whatever ends the put on its way leaves nothing behind. What has to be watched meanwhile:

- the bucket may be closed, dropped or opened again: then the put is over;
- an earlier put of the bucket may turn out not to be on disk and be taken back. This one has met its rows, and fails
  with it, as it would have done had it been appended in time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.kv.kv_bucket import KvBucket
from fluss.server.tablet.buckets.local_bucket import LocalBucket
from fluss.server.tablet.kv.merge.put_batch import Outcome


class PartSizes(NamedTuple):
    """How many records of a put are merged at once, and how many are a part where there are more."""

    at_once: int
    part: int


# Rows that are written as they came take two or three microseconds each. What clients send by default, 2 MiB of rows of
# hundred bytes, is merged at once, since parts cost a little more.
WHOLE_ROWS = PartSizes(24_576, 8_192)
# Rows that are looked into take up to fifteen.
MERGED_ROWS = PartSizes(4_096, 2_048)


class MergedParts:
    """What the parts of a put have come to so far."""

    def __init__(self, local: LocalBucket, kv: KvBucket) -> None:
        self._local = local
        self._kv = kv
        self._failed_puts = kv.failed_puts
        self._columns: list[list[Any]] = []
        self._change_types: list[bytes] = []
        self._entries: dict[bytes, bytes | None] = {}
        self._row_delta = 0

    def check(self) -> None:
        """FlussError when the put cannot go on: something else has happened between two parts."""
        if self._local.opened_kv() is not self._kv:
            raise FlussError(f"{self._local.name} was closed; send again", ErrorCode.KV_STORAGE_EXCEPTION)
        self._kv.check_usable()
        if self._kv.failed_puts != self._failed_puts:
            text = f"{self._local.name}: an earlier put could not be written, on whose rows this one builds; send again"
            raise FlussError(text, ErrorCode.KV_STORAGE_EXCEPTION)

    def old_values(self, keys: list[bytes], array: Any = None) -> list[bytes | None]:
        """As of the bucket (see `KvBucket.old_values`), with what the parts before this one left on top."""
        entries = self._entries
        if entries.keys().isdisjoint(keys):
            return self._kv.old_values(keys, array)
        values = [entries.get(key) for key in keys]
        unknown = [place for place, key in enumerate(keys) if key not in entries]
        for place, value in zip(unknown, self._kv.old_values([keys[place] for place in unknown]), strict=True):
            values[place] = value
        return values

    def add(self, outcome: Outcome) -> None:
        """The next part is merged."""
        self._columns.append(outcome.columns)
        self._change_types.append(outcome.change_types)
        self._entries.update(outcome.entries)
        self._row_delta += outcome.row_delta

    def joined(self) -> Outcome:
        """All parts as one."""
        columns = [pa.concat_arrays(parts) for parts in zip(*self._columns, strict=True)]
        return Outcome(columns, b"".join(self._change_types), self._entries, self._row_delta)
