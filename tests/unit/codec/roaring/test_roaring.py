"""Roaring bitmaps: golden bytes of Java's library (as the aggregation functions of Apache Fluss 0.9.1 write them)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.codec.roaring.bitmap32 import decode_bitmap32, encode_bitmap32, union32
from fluss.codec.roaring.bitmap64 import Bitmap64, decode_bitmap64, union64
from fluss.codec.roaring.containers import container_of, optimised
from fluss.errors import ErrorCode, FlussError

UNION = {32: union32, 64: union64}


def by_high_bits(numbers: Iterable[int]) -> dict[int, list[int]]:
    """Low 16 bits by the others, these in the order of their arrival."""
    found: dict[int, list[int]] = {}
    for number in numbers:
        found.setdefault(number >> 16, []).append(number & 0xFFFF)
    return {high: sorted(set(lows)) for high, lows in found.items()}


def bitmap(bits: int, numbers: Iterable[int]) -> bytes:
    """What Java writes for numbers that were added one by one, after `runOptimize`."""
    groups = by_high_bits(numbers).items()
    if bits == 32:
        return encode_bitmap32({high: optimised(container_of(lows)) for high, lows in groups})
    made = Bitmap64()
    for high, lows in groups:
        made.add(high.to_bytes(6, "big"), container_of(lows))
    made.optimise()
    return made.encode()


def numbers_of(bits: int, data: bytes) -> list[int]:
    if bits == 32:
        return [(high << 16) + int(low) for high, part in decode_bitmap32(data).items() for low in part.numbers]
    decoded = decode_bitmap64(data)
    return [
        (int.from_bytes(leaf.key, "big") << 16) + int(low)
        for leaf in decoded.leaves()
        for low in decoded.containers[leaf.place].numbers  # type: ignore[union-attr]
    ]


# One bitmap, another one, and what Java's aggregation makes of them.
SMALL: dict[tuple[int, str], tuple[Sequence[int], Sequence[int], str]] = {
    (32, "a run grows"): ([1, 2, 3, 100000], range(2, 10), "3b300100010000080001000000010001000800a086"),
    (32, "nothing and one"): ([], [7], "3a3000000100000000000000100000000700"),
    (32, "two are no run"): ([5, 6], [5, 6], "3a30000001000000000001001000000005000600"),
    (32, "five containers"): (
        [4294967295, 0],
        [0, 65536, 131072, 196608],
        "3a3000000500000000000000010000000200000003000000ffff000030000000320000003400000036000000380000000000000000000000"
        "ffff",
    ),
    (64, "a run grows"): (
        [1, 2, 3],
        range(2, 9),
        "01010000000000000004000000000000000000000000000000000001000000fe01000000010008000000010001000700010000000000000000"
        "00000000000000",
    ),
    (64, "nothing and one"): (
        [],
        [2**64 - 1],
        "01010000000000000004000000ffffffffffff000000000000000001000000fe01000000010201000000ffff010000000000000000000000"
        "00000000",
    ),
    (64, "nodes are split"): (
        [2**40, 2**16],
        [0, 2**63, 2**16 + 1],
        "0104000000000000000002000000008000000200010000000100000200020000000001000400000000000000000002000000000000000400"
        "0000000000000001010000000000000004000000000001000000000000000000000004000000800000000000030000000000000001000000"
        "fe040000000102010000000000010202000000000001000102010000000000010201000000000004000000000000000000000003000000",
    ),
    (64, "a node grows"): (
        [0, 65536, 131072],
        [131072, 196608, 262144, 327680],
        "0106000000000000000106000500000000000000050403020100000000000000000004000000000000000000000000000000000004000000"
        "0000000000010100000000000000040000000000000000020200000000000000040000000000000000030300000000000000040000000000"
        "00000004040000000000000004000000000000000005050000000000000001000000fe060000000102010000000000010201000000000001"
        "0201000000000001020100000000000102010000000000010201000000000006000000000000000000000005000000",
    ),
}

# Larger ones: the beginnings of the SHA-256 of the first, of the second and of both together.
PAIRS = [number for start in range(0, 4000, 3) for number in (start, start + 1)]
LARGE: dict[str, tuple[Sequence[int], Sequence[int], dict[int, str]]] = {
    "two halves make a run": (
        range(0, 9000, 2),
        range(1, 9000, 2),
        {
            32: "55459face76a1c5e 7cef26a9ed65d159 44cd2029847565e9",
            64: "194b6c64b9ef526b c4b17c251a728413 f711c4b1516924bb",
        },
    ),
    "bitmap and runs": (
        range(0, 65536, 3),
        [*range(100000, 104096), *range(7, 40)],
        {
            32: "bcd53d9b850f3a7f 7ba2e5baa0e48b4a 04111e438e7e1f8a",
            64: "cce624ef19d317ba 9aa41c4c45ed204f 15d05f066f9a243c",
        },
    ),
    "runs as long as the array": (
        PAIRS,
        [number + 6000 for number in PAIRS[:20]],
        {
            32: "deb6809693de4138 7669c68516202fc9 144497c8a6d0168b",
            64: "73d61dc8ae4f0204 4f9470836dba1ca8 033c8ceff08c64a1",
        },
    ),
    "a full container": (
        range(65535),
        [65535, 65536],
        {
            32: "3cee5f809dc1bde9 237e04e510fd2219 e1b7ae45e17b8c57",
            64: "fdc4effad3bb596e 6906a0eba3211458 68832c96b4b23950",
        },
    ),
    "places in a node of 48": (
        [k * 37 % 256 << 16 for k in range(40)],
        [k * 91 % 256 << 16 for k in range(60)],
        {
            32: "ce7a0661d7049f5d e55c1a1206d504ee cd7a3b0b5378e756",
            64: "048e840f633eb1c3 1c3675104fef8d54 9f5b6025cf33cf44",
        },
    ),
    "nodes of every kind": (
        [k << 16 for k in range(47)],
        [k * 11 << 20 for k in range(300)],
        {
            32: "8f29b35182707ec5 047d53b6f1db42c2 f86c59649c31a5be",
            64: "3fc816bafbacad5c 1f50ac9d2b54f865 f6f6d69ec6c85834",
        },
    ),
}


@pytest.mark.parametrize(("bits", "name"), SMALL)
def test_small_unions(bits: int, name: str) -> None:
    one, other, both = SMALL[bits, name]
    assert UNION[bits](bitmap(bits, one), bitmap(bits, other)).hex() == both
    assert numbers_of(bits, bytes.fromhex(both)) == sorted({*one, *other})


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", LARGE)
def test_large_unions(name: str, bits: int) -> None:
    one, other, digests = LARGE[name]
    first, second = bitmap(bits, one), bitmap(bits, other)
    united = UNION[bits](first, second)
    assert " ".join(hashlib.sha256(data).hexdigest()[:16] for data in (first, second, united)) == digests[bits]
    assert numbers_of(bits, united) == sorted({*one, *other})


def ranges(bits: int) -> st.SearchStrategy[list[int]]:
    """Numbers in a few stretches, near each other or far apart."""
    starts = st.one_of(st.integers(0, 2**18), st.integers(0, 2**bits - 5000))
    stretch = st.builds(
        lambda start, count, step: range(start, start + count * step, step),
        starts, st.integers(1, 500), st.sampled_from([1, 1, 2, 9]),
    )  # fmt: skip
    return st.lists(stretch, max_size=4).map(lambda parts: [number for part in parts for number in part])


@pytest.mark.parametrize("bits", [32, 64])
@given(data=st.data())
def test_a_union_has_the_numbers_of_both(bits: int, data: st.DataObject) -> None:
    one, other = data.draw(ranges(bits)), data.draw(ranges(bits))
    united = UNION[bits](bitmap(bits, one), bitmap(bits, other))
    assert numbers_of(bits, united) == sorted({*one, *other})
    assert UNION[bits](united, united) == united


@pytest.mark.parametrize("bits", [32, 64])
@given(data=st.data())
def test_damaged_bitmaps_are_refused_or_are_other_bitmaps(bits: int, data: st.DataObject) -> None:
    sound = bytearray(bitmap(bits, data.draw(ranges(bits))))
    for place in data.draw(st.lists(st.integers(0, len(sound) - 1), min_size=1, max_size=3)):
        sound[place] ^= data.draw(st.integers(1, 255))
    damaged = bytes(sound[: data.draw(st.integers(0, len(sound)))])
    try:
        united = UNION[bits](damaged, bitmap(bits, [1, 2**31]))
    except FlussError as error:
        refusal = error
    else:
        assert {1, 2**31} <= set(numbers_of(bits, united))
        return
    assert refusal.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "not a serialised roaring bitmap" in refusal.message


def test_form_of_containers() -> None:
    assert optimised(container_of([1, 2, 3])).form == container_of([1, 2, 3]).form
    many = container_of(np.arange(0, 65536, 2))
    assert optimised(many) is many
