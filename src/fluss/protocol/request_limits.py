"""A limit on the entries of a request: each one costs a handler Python time on the event loop.

The elements of all repeated fields are counted, at any depth. A request of 4 MB has room for two million of them, far
too many for a handler. The keys of lookups (repeated bytes) are exempt because they are processed in steps; prefixes
are counted. Staged files are exempt because they have a limit of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fluss.errors import ErrorCode, FlussError

# An element takes at least one byte, so shorter requests need no count.
MAX_REQUEST_ENTRIES = 16_384
# A fetch of a table with many partitions names all of their buckets, and clients do not split a fetch.
MAX_ENTRIES_BY_MESSAGE = {"FetchLogRequest": 65_536}
# Looking up one prefix costs as much as looking up a hundred keys. Clients send at most 8,192 at a time.
COUNTED_BYTES = frozenset({"fluss.protocol.PbPrefixLookupReqForBucket.keys"})
UNCOUNTED_FIELDS = frozenset({"fluss.protocol.PbStagedBucket.files"})

Count = Callable[[object, int], int]
"""(message, number of entries still allowed) -> how many are left after it; negative if there are too many."""


def check_entries(message: Any) -> None:
    """Raise FlussError 3 for a request with too many entries."""
    count = _count_of(message.DESCRIPTOR)
    name = message.DESCRIPTOR.name
    most = MAX_ENTRIES_BY_MESSAGE.get(name, MAX_REQUEST_ENTRIES)
    if count is not None and count(message, most) < 0:
        raise FlussError(
            f"{name} must have at most {most} entries, got more; split it into several requests",
            ErrorCode.CORRUPT_MESSAGE,
        )


_counts: dict[str, Count | None] = {}


def _count_of(descriptor: Descriptor) -> Count | None:
    """A function that counts the entries of a message of this type; None if the type cannot have any."""
    name = descriptor.full_name
    if name not in _counts:
        _counts[name] = _build(descriptor) if _has_entries(descriptor, set()) else None
    return _counts[name]


def _is_counted(field: FieldDescriptor) -> bool:
    if not field.is_repeated or field.full_name in UNCOUNTED_FIELDS:
        return False
    return field.type != FieldDescriptor.TYPE_BYTES or field.full_name in COUNTED_BYTES


def _has_entries(descriptor: Descriptor, seen: set[str]) -> bool:
    if descriptor.full_name in seen:
        return False
    seen.add(descriptor.full_name)
    return any(
        _is_counted(field) or (field.message_type is not None and _has_entries(field.message_type, seen))
        for field in descriptor.fields
    )


def _build(descriptor: Descriptor) -> Count:
    repeated = [field.name for field in descriptor.fields if _is_counted(field)]
    children = [
        (field.name, field.is_repeated, field.message_type)
        for field in descriptor.fields
        if field.message_type is not None and _has_entries(field.message_type, set())
    ]

    def count_entries(message: Any, left: int) -> int:
        # Lengths first: they cost nothing, and limit how many children are visited.
        for name in repeated:
            left -= len(getattr(message, name))
        for name, is_repeated, child_type in children:
            count = _count_of(child_type)  # Resolved at the call, because predicates contain predicates.
            if left < 0 or count is None:
                continue
            if not is_repeated:
                if message.HasField(name):
                    left = count(getattr(message, name), left)
                continue
            for child in getattr(message, name):
                left = count(child, left)
                if left < 0:
                    return left
        return left

    return count_entries
