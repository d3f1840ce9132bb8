"""Arrow log batches: decoding those of other writers, and round trips of everything we write."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluss.codec.arrow.compression import NO_COMPRESSION, Compression, CompressionKind
from fluss.codec.batches.arrow_batch import decode_arrow_batch, encode_arrow_batch
from fluss.codec.batches.arrow_message import MetadataWriter, read_message
from fluss.codec.batches.log_batch import CorruptBatch, check_crc, read_header
from fluss.model.types import DataType
from tests.support.runner.lanes import examples
from tests.support.values import reference_log_batches as golden
from tests.support.values.arrow_strategies import data_types, record_batches
from tests.unit.codec.batches.test_log_batch import v2_form

ZSTD = Compression(CompressionKind.ZSTD)
LZ4 = Compression(CompressionKind.LZ4_FRAME)
ALL = [NO_COMPRESSION, LZ4, ZSTD]


@pytest.mark.parametrize(
    "batch", [golden.APPEND_ARROW_CPP, golden.APPEND_JAVA, golden.APPEND_JAVA_ZSTD, golden.STATISTICS_JAVA, v2_form()]
)
def test_decodes_append_only_samples(batch: bytes) -> None:
    rows, change_types = golden.decode_rows(batch, golden.R3_SCHEMA)
    assert rows.equals(golden.ROWS_R3)
    assert change_types is None


@pytest.mark.parametrize("batch", [golden.CHANGELOG_ARROW_CPP, golden.CHANGELOG_JAVA])
def test_decodes_changelog_samples(batch: bytes) -> None:
    rows, change_types = golden.decode_rows(batch, golden.R2_SCHEMA)
    assert rows.equals(golden.ROWS_R2)
    assert change_types == golden.CHANGE_TYPES_R2


def test_decodes_javas_empty_lz4_buffers() -> None:
    rows, _ = golden.decode_rows(golden.ALL_NULL_JAVA_LZ4, golden.R3_SCHEMA)
    assert rows.to_pylist() == [{"id": 1, "name": None, "score": 1.0}, {"id": 2, "name": None, "score": 2.0}]


def test_decodes_at_a_position_and_an_empty_batch() -> None:
    both = golden.EMPTY_CHANGELOG + golden.APPEND_JAVA
    assert decode_arrow_batch(both, golden.R3_SCHEMA) == (None, b"")
    rows, _ = golden.decode_rows(memoryview(both), golden.R3_SCHEMA, 48)
    assert rows.equals(golden.ROWS_R3)


def test_encodes_sample_b_byte_for_byte() -> None:
    encoded = encode_arrow_batch(golden.ROWS_R3, 1, NO_COMPRESSION, writer_id=7, batch_sequence=0)
    assert encoded == golden.APPEND_ARROW_CPP


def test_encodes_sample_c_byte_for_byte() -> None:
    encoded = encode_arrow_batch(
        golden.ROWS_R2, 1, NO_COMPRESSION, writer_id=7, batch_sequence=1, change_types=golden.CHANGE_TYPES_R2
    )
    assert encoded == golden.CHANGELOG_ARROW_CPP


def test_encodes_empty_batches() -> None:
    empty = golden.ROWS_R2.slice(0, 0)
    encoded = encode_arrow_batch(empty, 1, ZSTD, writer_id=7, batch_sequence=3, change_types=b"")
    assert encoded == golden.EMPTY_CHANGELOG
    with_statistics = encode_arrow_batch(empty, 1, ZSTD, statistics_columns=[0])
    assert (len(with_statistics), read_header(with_statistics).magic) == (52, 1)


@pytest.mark.parametrize("sample", [golden.APPEND_JAVA, golden.APPEND_JAVA_ZSTD, golden.ALL_NULL_JAVA_LZ4])
def test_metadata_writer_reproduces_java(sample: bytes) -> None:
    message = read_message(sample, 48, len(sample))
    nodes = message.metadata[message.nodes_position :][: 16 * message.node_count]
    writer = MetadataWriter(message.compression, message.node_count, message.buffer_count)
    written = writer.write(message.row_count, message.body_length, nodes, list(message.buffers()))
    assert written == sample[48 : message.body_start]
    assert len(written) == writer.size


@pytest.mark.parametrize("compression", ALL)
def test_big_buffers_round_trip(compression: Compression) -> None:
    count = 60_000
    rows = pa.record_batch(
        {"n": pa.array(range(count), pa.int64()), "s": pa.array([f"text {i}" for i in range(count)])}
    )
    encoded = encode_arrow_batch(rows, 1, compression)
    assert check_crc(encoded, 0, read_header(encoded))
    decoded, _ = golden.decode_rows(encoded, rows.schema)
    assert decoded.equals(rows)


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.data(), st.lists(data_types(), min_size=1, max_size=4), st.sampled_from(ALL), st.booleans())
def test_every_type_round_trips(
    data: st.DataObject, types: list[DataType], compression: Compression, is_changelog: bool
) -> None:
    rows = data.draw(record_batches(types))
    changes = data.draw(st.binary(min_size=rows.num_rows, max_size=rows.num_rows)) if is_changelog else None
    changes = bytes(change % 5 for change in changes) if changes is not None else None
    encoded = encode_arrow_batch(rows, 3, compression, writer_id=1, batch_sequence=2, change_types=changes)
    header = read_header(encoded)
    assert check_crc(encoded, 0, header)
    assert (header.record_count, header.last_offset_delta) == (rows.num_rows, max(rows.num_rows - 1, 0))
    # at an odd position, as in the middle of a frame
    decoded, decoded_changes = decode_arrow_batch(b"x" + encoded, rows.schema, 1)
    assert decoded_changes == changes
    if decoded is None:
        assert not rows.num_rows
    else:
        assert decoded.serialize().equals(rows.serialize())


def test_schema_of_another_width_is_refused() -> None:
    for schema in (golden.R2_SCHEMA, golden.R3_SCHEMA.append(pa.field("more", pa.int8()))):
        with pytest.raises(CorruptBatch, match="schema"):
            decode_arrow_batch(golden.APPEND_JAVA, schema)


def test_writer_refuses_wrong_input() -> None:
    with pytest.raises(ValueError, match="change types"):
        encode_arrow_batch(golden.ROWS_R2, 1, ZSTD, change_types=b"\0")
    with pytest.raises(ValueError, match="cast"):
        encode_arrow_batch(pa.record_batch({"x": pa.array(["a"], pa.large_utf8())}), 1, ZSTD)


def _with_first_prefix(batch: bytes, raw_length: int) -> bytearray:
    message = read_message(batch, 48, len(batch))
    broken = bytearray(batch)
    broken[message.body_start : message.body_start + 8] = raw_length.to_bytes(8, "little", signed=True)
    return broken


@pytest.mark.parametrize("raw_length", [2**62, 2**40, 2**31, -2, -(2**63)])
def test_lying_buffer_lengths_are_refused_before_memory_is_taken(raw_length: int) -> None:
    for sample in (golden.APPEND_JAVA_ZSTD, golden.ALL_NULL_JAVA_LZ4):
        with pytest.raises(CorruptBatch, match="claims"):
            decode_arrow_batch(_with_first_prefix(sample, raw_length), golden.R3_SCHEMA)


def test_offsets_outside_of_the_text_are_refused() -> None:
    broken = bytearray(golden.APPEND_JAVA)
    start = len(broken) - 0x58 + 0x20
    broken[start + 4 : start + 8] = b"\xff\xff\xff\x7f"
    with pytest.raises(CorruptBatch):
        decode_arrow_batch(broken, golden.R3_SCHEMA)


def test_text_that_is_no_utf8_is_refused() -> None:
    broken = bytearray(golden.APPEND_JAVA)
    broken[len(broken) - 0x58 + 0x30] = 0xFF
    with pytest.raises(CorruptBatch):
        decode_arrow_batch(broken, golden.R3_SCHEMA)


def test_cut_batch_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="ends at"):
        decode_arrow_batch(golden.APPEND_JAVA[:-1], golden.R3_SCHEMA)
