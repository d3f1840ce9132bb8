"""Roaring bitmaps of 32-bit numbers in the portable form, and their union: the function `rbm32`.

    4  12346, then 4 bytes number of containers; or
       12347 + (number of containers - 1) << 16, then a bit for each container: 1 if it holds runs
    4 per container: the high 16 bits of its numbers, and their count minus one
    4 per container: where its bytes begin; omitted if there are runs and fewer than four containers
    the containers, in the order of their high bits

A worked example, {1, 2, 3, 100000}:

    3a300000 02000000  0000 0200  0100 0000  18000000 1e000000  0100 0200 0300  a086
"""

from __future__ import annotations

import itertools
import struct

import numpy as np

from fluss.codec.roaring.containers import (
    ARRAY,
    BITMAP,
    MAX_ARRAY_NUMBERS,
    RUN,
    Container,
    Cursor,
    broken,
    optimised,
    read_container,
    union,
)

PLAIN_COOKIE = 12346
RUNS_COOKIE = 12347
MAX_CONTAINERS = 1 << 16
FEWEST_WITH_OFFSETS = 4
_U32 = struct.Struct("<I")
_HEAD = struct.Struct("<HH")
Containers = dict[int, Container]


def decode_bitmap32(data: bytes) -> Containers:
    """Decode a bitmap to containers, by the high 16 bits of their numbers. Bytes after it are ignored, as in Java."""
    cursor = Cursor(data)
    (cookie,) = cursor.unpack(_U32)
    flags = b""
    if cookie & 0xFFFF == RUNS_COOKIE:
        count = (cookie >> 16) + 1
        flags = cursor.take((count + 7) // 8)
    elif cookie == PLAIN_COOKIE:
        (count,) = cursor.unpack(_U32)
        if count > MAX_CONTAINERS:
            raise broken(f"it claims {count} containers, but there can be at most {MAX_CONTAINERS}")
    else:
        raise broken(f"it begins with {cookie} instead of {PLAIN_COOKIE} or {RUNS_COOKIE}")
    heads = [cursor.unpack(_HEAD) for _ in range(count)]
    if any(later[0] <= earlier[0] for earlier, later in itertools.pairwise(heads)):
        raise broken("its containers are not sorted")
    if not flags or count >= FEWEST_WITH_OFFSETS:
        cursor.take(4 * count)
    found: Containers = {}
    for number, (high, size_less_one) in enumerate(heads):
        is_run = bool(flags) and bool(flags[number >> 3] >> (number & 7) & 1)
        form = RUN if is_run else ARRAY if size_less_one < MAX_ARRAY_NUMBERS else BITMAP
        found[high] = read_container(form, size_less_one + 1, cursor)
    return found


def encode_bitmap32(containers: Containers) -> bytes:
    """Encode a bitmap in the portable form."""
    items = sorted(containers.items())
    with_runs = any(container.form == RUN for _, container in items)
    if with_runs:
        flags = np.packbits([container.form == RUN for _, container in items], bitorder="little").tobytes()
        head = _U32.pack(RUNS_COOKIE | (len(items) - 1) << 16) + flags
    else:
        head = _U32.pack(PLAIN_COOKIE) + _U32.pack(len(items))
    head += b"".join(_HEAD.pack(high, len(container) - 1) for high, container in items)
    bodies = [container.data for _, container in items]
    if not with_runs or len(items) >= FEWEST_WITH_OFFSETS:
        start = len(head) + 4 * len(items)
        sizes = np.array([0, *map(len, bodies)], np.int64)
        head += (start + np.cumsum(sizes)[:-1]).astype("<u4").tobytes()
    return head + b"".join(bodies)


def union32(one: bytes, other: bytes) -> bytes:
    """The union of two bitmaps. FlussError -1 if one of them is not a bitmap."""
    containers = decode_bitmap32(one)
    for high, container in decode_bitmap32(other).items():
        known = containers.get(high)
        containers[high] = container if known is None else union(known, container)
    return encode_bitmap32({high: optimised(container) for high, container in containers.items()})
