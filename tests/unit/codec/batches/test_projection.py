"""Projection on stored bytes: the worked sample, and that it equals decoding and selecting."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluss.codec.arrow.compression import NO_COMPRESSION, Compression, CompressionKind
from fluss.codec.batches.arrow_batch import encode_arrow_batch
from fluss.codec.batches.arrow_message import read_message
from fluss.codec.batches.log_batch import CorruptBatch, read_header
from fluss.codec.batches.projection import Projector
from fluss.model.types import DataType, IntType
from tests.support.runner.lanes import examples
from tests.support.values import reference_log_batches as golden
from tests.support.values.arrow_strategies import data_types, flat_types, record_batches
from tests.unit.codec.batches.test_log_batch import v2_form

ALL = [Compression(kind) for kind in CompressionKind]


def project(batch: bytes, projector: Projector) -> bytes:
    return b"".join(projector.project(batch, 0, read_header(batch)))


def test_worked_sample() -> None:
    result = project(golden.APPEND_JAVA, Projector(golden.R3_TYPES, [0, 2], NO_COMPRESSION))
    assert len(result) == 296
    assert result[8:12].hex() == "1c010000"
    assert result[:8] + result[12:48] == golden.APPEND_JAVA[:8] + golden.APPEND_JAVA[12:48]
    message = read_message(result, 48, len(result))
    assert (len(message.metadata), message.body_length) == (184, 56)
    assert message.buffers() == (0, 1, 8, 12, 24, 1, 32, 24)
    assert message.nodes() == (3, 0, 3, 1)
    rows, _ = golden.decode_rows(result, pa.schema([golden.R3_SCHEMA.field(0), golden.R3_SCHEMA.field(2)]))
    assert rows.equals(golden.ROWS_R3.select([0, 2]))


@pytest.mark.parametrize("sample", [golden.APPEND_JAVA, golden.APPEND_JAVA_ZSTD, golden.ALL_NULL_JAVA_LZ4])
def test_all_columns_give_javas_bytes_again(sample: bytes) -> None:
    assert project(sample, Projector(golden.R3_TYPES, [0, 1, 2], NO_COMPRESSION)) == sample


@pytest.mark.parametrize("sample", [golden.STATISTICS_JAVA, v2_form()])
def test_statistics_are_removed(sample: bytes) -> None:
    result = project(sample, Projector(golden.R3_TYPES, [1], NO_COMPRESSION))
    header = read_header(result)
    assert (header.size, header.statistics_length) == (len(result), 0)
    assert header.crc == read_header(sample).crc
    rows, _ = golden.decode_rows(result, golden.R3_SCHEMA.remove(2).remove(0))
    assert rows.equals(golden.ROWS_R3.select([1]))


def test_empty_batch_is_unchanged() -> None:
    projector = Projector(golden.R3_TYPES, [1], NO_COMPRESSION)
    assert project(golden.EMPTY_CHANGELOG, projector) == golden.EMPTY_CHANGELOG


def test_changelog_keeps_its_change_types() -> None:
    result = project(golden.CHANGELOG_JAVA, Projector(golden.R3_TYPES[:2], [1], NO_COMPRESSION))
    rows, change_types = golden.decode_rows(result, pa.schema([golden.R2_SCHEMA.field(1)]))
    assert rows.equals(golden.ROWS_R2.select([1]))
    assert change_types == golden.CHANGE_TYPES_R2


def test_batch_keeps_its_own_codec() -> None:
    """The reference stamps the table's codec on every batch and so garbles those of careless writers."""
    projector = Projector(golden.R3_TYPES, [0], Compression(CompressionKind.ZSTD))
    rows, _ = golden.decode_rows(project(golden.APPEND_JAVA, projector), pa.schema([golden.R3_SCHEMA.field(0)]))
    assert rows.equals(golden.ROWS_R3.select([0]))


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    st.data(),
    st.lists(flat_types() | data_types(), min_size=1, max_size=6),
    st.sampled_from(ALL),
    st.booleans(),
    st.integers(0, 2),
)
def test_projection_equals_decode_and_select(
    data: st.DataObject, types: list[DataType], compression: Compression, is_changelog: bool, magic: int
) -> None:
    rows = data.draw(record_batches(types, min_rows=1, max_rows=10))
    fields = sorted(data.draw(st.sets(st.integers(0, len(types) - 1), min_size=1)))
    changes = bytes(rows.num_rows) if is_changelog else None
    encoded = encode_arrow_batch(rows, 1, compression, change_types=changes, magic=magic)
    result = project(encoded, Projector(types, fields, compression))
    decoded, decoded_changes = golden.decode_rows(result, pa.schema([rows.schema.field(field) for field in fields]))
    assert decoded.serialize().equals(rows.select(fields).serialize())
    assert decoded_changes == changes


def test_pieces_are_slices_of_the_source() -> None:
    source = bytearray(golden.APPEND_JAVA)
    pieces = Projector(golden.R3_TYPES, [0, 2], NO_COMPRESSION).project(source, 0, read_header(source))
    assert [type(piece) for piece in pieces] == [bytearray, memoryview, memoryview]
    assert all(piece.obj is source for piece in pieces[1:] if isinstance(piece, memoryview))


@pytest.mark.parametrize("fields", [[], [1, 0], [0, 0], [-1], [3], [0, 3]])
def test_wrong_columns_are_refused(fields: list[int]) -> None:
    with pytest.raises(ValueError, match="column"):
        Projector(golden.R3_TYPES, fields, NO_COMPRESSION)


def test_batch_of_another_schema_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="schema"):
        project(golden.APPEND_JAVA, Projector((*golden.R3_TYPES, IntType()), [0], NO_COMPRESSION))


def test_cut_batch_is_refused() -> None:
    projector = Projector(golden.R3_TYPES, [0], NO_COMPRESSION)
    with pytest.raises(CorruptBatch, match="ends at"):
        projector.project(golden.APPEND_JAVA[:-1], 0, read_header(golden.APPEND_JAVA))
