"""The order in which the rows of a put are written to a store: by key, since inserting next to the last row is faster.

Sorting very many keys takes too long for one step of the event loop, so those of a very large put are sorted in parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, tee

from fluss.server.storage.kv import limits

Entries = Mapping[bytes, bytes | None]


def written_order(group: Entries) -> tuple[Iterable[bytes], Iterable[bytes | None]]:
    """The keys in the order in which they should be written, and their values."""
    if len(group) < limits.SORTED_WRITE_MIN_ROWS:
        return group, group.values()
    if len(group) > limits.SORTED_AT_ONCE_MAX_ROWS:
        parts, again = tee(_order_of_parts(group))
        return parts, map(group.__getitem__, again)
    keys = sorted(group)
    # A merge of distinct keys has already sorted them: then no value has to be looked up.
    return keys, group.values() if keys == list(group) else map(group.__getitem__, keys)


def _order_of_parts(group: Entries) -> Iterator[bytes]:
    """The keys, sorted within parts of `WRITE_CHUNK_ROWS`."""
    keys = iter(group)
    while part := sorted(islice(keys, limits.WRITE_CHUNK_ROWS)):
        yield from part
