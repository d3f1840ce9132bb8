"""Headers, checksums and the walk over concatenated batches, on bytes of other implementations."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.codec.batches.log_batch import (
    BatchHeader,
    CorruptBatch,
    UnknownMagic,
    check_change_types,
    check_crc,
    empty_batch,
    encode_batch,
    encode_header,
    iter_batches,
    read_header,
    stamp,
)
from fluss.codec.crc import crc32c, crc32c_of_pieces
from tests.support.values import reference_log_batches as golden

GOLDEN = {
    "A": (golden.EMPTY_CHANGELOG, 0x3C6802AC),
    "B": (golden.APPEND_ARROW_CPP, 0xD5A44700),
    "C": (golden.CHANGELOG_ARROW_CPP, 0xB13B991E),
    "B'": (golden.APPEND_JAVA, 0xE0A04EDD),
    "C'": (golden.CHANGELOG_JAVA, 0x066AC4E8),
    "D": (golden.APPEND_JAVA_ZSTD, 0xEDB399AF),
    "E": (golden.ALL_NULL_JAVA_LZ4, 0xBCA9192D),
    "F": (golden.STATISTICS_JAVA, 0x92D34A00),
}


def v2_form() -> bytes:
    return encode_batch([golden.APPEND_JAVA[48:]], 3, 1, append_only=True, writer_id=7, batch_sequence=0, magic=2)


@pytest.mark.parametrize("name", GOLDEN)
def test_every_sample_has_the_size_and_checksum_it_says(name: str) -> None:
    batch, crc = GOLDEN[name]
    header = read_header(batch)
    assert (header.size, header.crc) == (len(batch), crc)
    assert check_crc(batch, 0, header)
    assert encode_header(header) == batch[: header.header_size]


def test_fields_of_a_v0_header() -> None:
    header = read_header(golden.CHANGELOG_JAVA)
    assert header == BatchHeader(0, 324, 0, 0, -1, 0x066AC4E8, 1, 0, 3, 7, 1, 4, 0)
    assert (header.last_offset, header.next_offset, header.records_start) == (3, 4, 48)
    assert not header.append_only
    assert read_header(golden.APPEND_JAVA).append_only


def test_fields_of_a_v1_header() -> None:
    header = read_header(golden.STATISTICS_JAVA)
    assert (header.magic, header.statistics_length, header.header_size) == (1, 0x5D, 52)
    assert header.records_start == 0x91
    assert golden.STATISTICS_JAVA[header.records_start :] == golden.APPEND_JAVA[48:]


def test_v2_form_has_its_epoch_before_the_checksum() -> None:
    batch = v2_form()
    header = read_header(batch)
    assert len(batch) == 400
    assert batch[0x15:0x19] == b"\xff\xff\xff\xff"
    assert (header.magic, header.leader_epoch, header.crc, header.header_size) == (2, -1, 0xB7405E5B, 56)
    assert int.from_bytes(batch[0x19:0x1D], "little") == 0xB7405E5B
    assert check_crc(batch, 0, header)


def test_empty_batches_are_byte_exact() -> None:
    assert empty_batch(1, writer_id=7, batch_sequence=3) == golden.EMPTY_CHANGELOG
    assert read_header(empty_batch(1)).crc == 0x28172B1F
    assert read_header(empty_batch(1)).next_offset == 1
    assert [len(empty_batch(1, magic=magic)) for magic in (0, 1, 2)] == [48, 52, 56]


def test_stamp_changes_offset_and_time_only() -> None:
    batch = bytearray(golden.EMPTY_CHANGELOG)
    stamp(batch, 0, 100, 1_700_000_000_000)
    assert batch[:8].hex() == "6400000000000000"
    assert batch[0x0D:0x15].hex() == "0068e5cf8b010000"
    assert batch[8:13] + batch[0x15:] == golden.EMPTY_CHANGELOG[8:13] + golden.EMPTY_CHANGELOG[0x15:]
    header = read_header(batch)
    assert check_crc(batch, 0, header)
    assert (header.next_offset, header.commit_timestamp) == (101, 1_700_000_000_000)


def test_stamp_and_check_through_a_memoryview() -> None:
    data = bytearray(golden.EMPTY_CHANGELOG + golden.APPEND_JAVA)
    view = memoryview(data)
    stamp(view, 48, 7, 8)
    header = read_header(view, 48)
    assert (header.base_offset, header.commit_timestamp) == (7, 8)
    assert check_crc(view, 48, header)


def test_reads_a_mapped_file(tmp_path: Path) -> None:
    file = tmp_path / "segment"
    file.write_bytes(golden.APPEND_JAVA + golden.STATISTICS_JAVA)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        found = list(iter_batches(mapped))
        assert [position for position, _ in found] == [0, len(golden.APPEND_JAVA)]
        assert all(check_crc(mapped, position, header) for position, header in found)


def test_walk_ends_silently_in_a_cut_batch() -> None:
    both = golden.APPEND_JAVA + golden.STATISTICS_JAVA
    first = len(golden.APPEND_JAVA)
    assert [len(list(iter_batches(both[:size]))) for size in (0, 47, first - 1, first, first + 60, len(both))] == [
        0, 0, 0, 1, 1, 2,
    ]  # fmt: skip
    assert [position for position, _ in iter_batches(both, first)] == [first]
    assert [position for position, _ in iter_batches(both, 0, first + 10)] == [0]


@pytest.mark.parametrize(("length", "magic"), [(-1, 0), (35, 0), (39, 1), (43, 2), (-(2**31), 0)])
def test_impossible_lengths_are_corrupt(length: int, magic: int) -> None:
    batch = bytearray(golden.APPEND_JAVA)
    batch[8:12] = length.to_bytes(4, "little", signed=True)
    batch[12] = magic
    with pytest.raises(CorruptBatch):
        list(iter_batches(batch))
    with pytest.raises(CorruptBatch):
        read_header(batch)


def test_unknown_magic_is_told_apart() -> None:
    for magic in (3, 127, 128, 255):
        batch = bytearray(golden.APPEND_JAVA)
        batch[12] = magic
        with pytest.raises(UnknownMagic):
            read_header(batch)


def test_impossible_counts_are_corrupt() -> None:
    for position in (28, 44):
        batch = bytearray(golden.APPEND_JAVA)
        batch[position : position + 4] = b"\xff\xff\xff\xff"
        with pytest.raises(CorruptBatch):
            read_header(batch)
    for statistics_length in (-1, 0x7FFFFFFF, 489 - 51):
        batch = bytearray(golden.STATISTICS_JAVA)
        batch[48:52] = statistics_length.to_bytes(4, "little", signed=True)
        with pytest.raises(CorruptBatch):
            read_header(batch)


def test_short_buffers_are_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        read_header(golden.APPEND_JAVA, len(golden.APPEND_JAVA) - 47)
    with pytest.raises(CorruptBatch):
        read_header(golden.STATISTICS_JAVA[:50])
    with pytest.raises(CorruptBatch):
        read_header(golden.APPEND_JAVA, -1)
    assert not check_crc(golden.APPEND_JAVA[:-1], 0, read_header(golden.APPEND_JAVA))


def test_every_covered_byte_is_covered() -> None:
    for position in (25, 27, 32, 44, 48, 200, len(golden.APPEND_JAVA) - 1):
        batch = bytearray(golden.APPEND_JAVA)
        batch[position] ^= 0x10
        assert not check_crc(batch, 0, read_header(batch))


def test_writer_refuses_what_the_header_cannot_hold() -> None:
    with pytest.raises(ValueError, match="schema id"):
        empty_batch(40_000)
    with pytest.raises(ValueError, match="statistics"):
        encode_batch([], 0, 1, append_only=True, statistics=b"x")


def test_change_types() -> None:
    check_change_types(bytes(range(5)), 5)
    with pytest.raises(CorruptBatch, match="5"):
        check_change_types(b"\x05", 1)
    with pytest.raises(CorruptBatch):
        check_change_types(b"\x00", 2)


@given(st.lists(st.binary(max_size=30), max_size=5), st.integers(0, 10), st.integers(0, 10))
def test_checksum_in_place_and_in_pieces(pieces: list[bytes], skip: int, cut: int) -> None:
    whole = b"".join(pieces)
    assert crc32c_of_pieces(pieces) == crc32c(whole)
    start, end = min(skip, len(whole)), max(min(skip, len(whole)), len(whole) - cut)
    assert crc32c(memoryview(whole), start, end) == crc32c(whole[start:end])
    assert crc32c(b"123456789") == 0xE3069283
