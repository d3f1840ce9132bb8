"""From batches of any schema, cut or whole, to the scanner's rows."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from fluss.client.decode.decoder import BatchDecoder, Decoded
from fluss.client.decode.log_walk import walk
from fluss.client.decode.scan_plan import ScanPlan
from fluss.client.decode.stored_batch import StoredBatch
from fluss.client.net.metadata import ClientTable
from fluss.codec.arrow.compression import NO_COMPRESSION
from fluss.codec.arrow.types import to_arrow_schema
from fluss.codec.batches.arrow_batch import encode_arrow_batch
from fluss.codec.batches.log_batch import empty_batch, read_header, stamp
from fluss.codec.batches.projection import Projector
from fluss.codec.batches.row_log_batch import encode_row_batch
from fluss.codec.crc import crc32c
from fluss.codec.rows.columns import RowFormat
from fluss.errors import ErrorCode, FlussError
from fluss.model import types as t
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import TablePath
from fluss.model.schema import Column, Schema
from fluss.values.basic import TableBucket
from fluss.values.predicates import col

OLD = Schema((Column("id", t.IntType()), Column("name", t.StringType()))).numbered()
NEW = Schema((*OLD.columns, Column("extra", t.BigIntType(), column_id=7)), highest_field_id=7)
BUCKET = TableBucket(5, 0)


def decoder(schema: Schema = NEW, schema_id: int = 2, log_format: str | None = None, **plan: Any) -> BatchDecoder:
    properties = {"table.log.format": log_format} if log_format else {}
    descriptor = TableDescriptor(schema, bucket_count=1, properties=properties)
    table = ClientTable(TablePath("db", "t"), 5, schema_id, descriptor, 0, 0)
    made = BatchDecoder(table, ScanPlan(**plan))
    made.learn(1, OLD)
    made.learn(2, NEW)
    return made


def batch(ids: list[int], base: int, schema: Schema = OLD, schema_id: int = 1, **options: Any) -> bytearray:
    rows = [{"id": number, "name": f"n{number}", "extra": number * 10} for number in ids]
    columns = pa.RecordBatch.from_pylist(rows, to_arrow_schema(NEW)).select(schema.column_names)
    data = bytearray(encode_arrow_batch(columns, schema_id, NO_COMPRESSION, **options))
    stamp(data, 0, base, 1000 + base)
    return data


def rows_of(steps: list[Decoded]) -> list[dict[str, Any]]:
    return [record.row for step in steps if step.rows is not None for record in step.rows.records()]


def offsets_of(steps: list[Decoded]) -> list[int]:
    return [record.offset for step in steps if step.rows is not None for record in step.rows.records()]


def test_old_and_new_rows_have_the_same_columns() -> None:
    view = memoryview(batch([1, 2], 0) + batch([3], 2, NEW, 2))
    steps = decoder().decode(view, 0, BUCKET, projected=False)
    assert rows_of(steps) == [
        {"id": 1, "name": "n1", "extra": None},
        {"id": 2, "name": "n2", "extra": None},
        {"id": 3, "name": "n3", "extra": 30},
    ]
    assert [step.next_offset for step in steps] == [2, 3]
    assert steps[0].size_bytes > 0
    assert [record.timestamp for record in steps[1].rows.records()] == [1002]  # type: ignore[union-attr]
    older = decoder(OLD, 1).decode(view, 0, BUCKET, projected=False)
    assert rows_of(older)[2] == {"id": 3, "name": "n3"}


def test_rows_as_written() -> None:
    view = memoryview(batch([1], 0) + batch([3], 1, NEW, 2))
    steps = decoder(fixed_schema=False).decode(view, 0, BUCKET, projected=False)
    assert [list(row) for row in rows_of(steps)] == [["id", "name"], ["id", "name", "extra"]]


def test_names_may_change_but_ids_count() -> None:
    renamed = replace(OLD, columns=(replace(OLD.columns[0], name="number"), OLD.columns[1]))
    assert rows_of(decoder(renamed, 3).decode(memoryview(batch([1], 0)), 0, BUCKET, projected=False)) == [
        {"number": 1, "name": "n1"}
    ]


def test_a_column_with_another_type_is_an_error() -> None:
    changed = Schema((replace(OLD.columns[0], data_type=t.BigIntType()), OLD.columns[1]))
    (step,) = decoder(changed, 3).decode(memoryview(batch([1], 0)), 0, BUCKET, projected=False)
    assert isinstance(step.error, FlussError)
    assert "'id'" in step.error.message


def test_rows_before_the_position_are_left_out() -> None:
    view = memoryview(batch([0, 1, 2], 0) + batch([3, 4, 5], 3))
    for position in range(7):
        steps = decoder().decode(view, position, BUCKET, projected=False)
        assert offsets_of(steps) == list(range(position, 6))


def test_a_cut_off_batch_at_the_end_is_nothing() -> None:
    data = batch([1, 2], 0) + batch([3], 2)
    steps = decoder().decode(memoryview(data)[:-1], 0, BUCKET, projected=False)
    assert offsets_of(steps) == [0, 1]
    walked = walk(memoryview(data)[:-1])
    assert (walked.end, walked.next_offset, walked.schema_ids) == (read_header(data).size, 2, {1})
    assert walk(memoryview(data)[:60]).next_offset is None
    assert walk(memoryview(b"")).end == 0


def test_empty_batches_move_the_position() -> None:
    empty = bytearray(empty_batch(1))
    stamp(empty, 0, 2, 0)
    steps = decoder().decode(memoryview(batch([1, 2], 0) + empty), 0, BUCKET, projected=False, filtered_end=9)
    assert [(step.rows is None, step.next_offset) for step in steps] == [(False, 2), (True, 3), (True, 9)]


def test_changelogs_keep_their_change_types() -> None:
    view = memoryview(batch([1, 1, 2], 0, change_types=bytes((2, 3, 4))))
    (step,) = decoder(predicate=col("id") == 1).decode(view, 0, BUCKET, projected=False)
    assert step.rows is not None
    assert [record.change_type.short_string() for record in step.rows.records()] == ["-U", "+U"]


def test_a_wrong_checksum_is_an_error_unless_the_batch_was_cut() -> None:
    good, bad = batch([1, 2], 0), batch([3, 4], 2)
    bad[-1] ^= 1
    steps = decoder().decode(memoryview(good + bad + batch([5], 4)), 0, BUCKET, projected=False)
    assert offsets_of(steps) == [0, 1]
    assert steps[-1].error is not None
    assert steps[-1].error.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION
    assert "offset 2" in steps[-1].error.message
    assert steps[-1].next_offset == 2
    cut = decoder(OLD, 1, projection=(0,))
    data = batch([1, 2], 0)
    pieces = Projector(OLD.data_types, [0], NO_COMPRESSION).project(data, 0, read_header(data))
    view = memoryview(b"".join(bytes(piece) for piece in pieces))
    assert rows_of(cut.decode(view, 0, BUCKET, projected=True)) == [{"id": 1}, {"id": 2}]
    assert rows_of(cut.decode(memoryview(data), 0, BUCKET, projected=False)) == [{"id": 1}, {"id": 2}]


def test_garbage_is_an_error_not_an_exception() -> None:
    data = batch([1], 0)
    data[8:12] = (-5).to_bytes(4, "little", signed=True)
    (step,) = decoder().decode(memoryview(data), 0, BUCKET, projected=False)
    assert step.error is not None
    walked = walk(memoryview(data))
    assert walked.end == 0
    assert "invalid length -5" in str(walked.fault)


@pytest.mark.parametrize(
    ("plan", "positions"),
    [
        ({}, None),
        ({"projection": (0, 1, 2)}, None),
        ({"projection": (2, 0)}, (0, 2)),
        ({"projection": (1,), "predicate": col("extra") > 3}, (1, 2)),
        ({"projection": (1,), "predicate": (col("extra") > 3) & (col("id") > 3)}, None),
    ],
)
def test_what_is_asked_of_the_server(plan: dict[str, Any], positions: tuple[int, ...] | None) -> None:
    assert decoder(**plan).wire_positions == positions
    assert decoder(log_format="INDEXED", **plan).wire_positions is None


def test_filter_columns_are_not_delivered() -> None:
    view = memoryview(batch([1, 2, 3], 0, NEW, 2))
    made = decoder(projection=(1,), predicate=col("extra") >= 20)
    assert rows_of(made.decode(view, 0, BUCKET, projected=False)) == [{"name": "n2"}, {"name": "n3"}]
    assert offsets_of(made.decode(view, 0, BUCKET, projected=False)) == [1, 2]
    assert offsets_of(made.decode(view, 2, BUCKET, projected=False)) == [2]
    assert made.output_schema == pa.schema([("name", pa.string())])
    old = memoryview(batch([1, 2, 3], 0))
    (step,) = made.decode(old, 0, BUCKET, projected=False)
    assert (step.rows, step.next_offset) == (None, 3)


@pytest.mark.parametrize("row_format", list(RowFormat))
def test_row_formats(row_format: RowFormat) -> None:
    rows = pa.RecordBatch.from_pylist([{"id": 1, "name": "a"}, {"id": 2, "name": None}], to_arrow_schema(OLD))
    data = encode_row_batch(rows, OLD, row_format, 1)
    made = decoder(log_format=row_format.name, projection=(2, 0))
    assert rows_of(made.decode(memoryview(data), 0, BUCKET, projected=False)) == [
        {"extra": None, "id": 1},
        {"extra": None, "id": 2},
    ]
    arrow = memoryview(batch([7], 0))  # pyfluss writes Arrow into tables of row formats
    assert rows_of(made.decode(arrow, 0, BUCKET, projected=False)) == [{"extra": None, "id": 7}]


def test_whether_a_projection_can_be_asked_for() -> None:
    made = decoder(projection=(2,))
    assert (made.has_wire_columns(1), made.has_wire_columns(2), made.has_wire_columns(9)) == (False, True, False)
    assert made.knows(2)
    assert not made.knows(9)


# ---- batches that stay as they are stored ----

CRC_POSITION = 21
LONG_NAMES = [f"{'name ' * 20}{number}" for number in range(400)]


def long_batch(base: int = 0, **options: Any) -> bytearray:
    """Large enough to be handed on."""
    rows = pa.RecordBatch.from_pydict(
        {"id": pa.array(range(400), pa.int32()), "name": LONG_NAMES, "extra": range(400)}, to_arrow_schema(NEW)
    )
    data = bytearray(encode_arrow_batch(rows, 2, NO_COMPRESSION, **options))
    stamp(data, 0, base, 1000 + base)
    return data


def test_large_batches_stay_as_they_are_stored() -> None:
    data = long_batch()
    (step,) = decoder(keep_stored=True).decode(memoryview(data), 0, BUCKET, projected=False)
    assert step.rows is not None
    assert isinstance(step.rows.rows, StoredBatch)
    assert len(step.rows) == 400
    stored: Any = step.rows.rows
    assert stored.is_whole
    assert bytes(stored.message) in bytes(data)
    assert pa.ipc.read_record_batch(pa.py_buffer(stored.message), to_arrow_schema(NEW)).column("name").to_pylist() == (
        LONG_NAMES
    )


def test_parts_of_a_stored_batch_are_decoded_when_somebody_wants_them() -> None:
    (step,) = decoder(keep_stored=True).decode(memoryview(long_batch(50)), 60, BUCKET, projected=False)
    assert step.rows is not None
    assert (step.rows.base_offset, len(step.rows), step.next_offset) == (60, 390, 450)
    part: Any = step.rows.slice(5, 8)
    assert (part.base_offset, len(part), part.rows.is_whole) == (65, 3, False)
    assert part.rows.decoded().column("extra").to_pylist() == [15, 16, 17]
    assert part.rows.slice(1, 9).decoded().column("extra").to_pylist() == [16, 17]


@pytest.mark.parametrize(
    ("plan", "options"),
    [
        ({"keep_stored": True, "predicate": col("id") > 3}, {}),  # rows are left out
        ({"keep_stored": True, "projection": (1, 0)}, {}),  # another order
        ({"keep_stored": True}, {"change_types": bytes(400)}),  # a changelog
        ({}, {}),
    ],
)
def test_other_batches_are_decoded(plan: dict[str, Any], options: dict[str, Any]) -> None:
    (step,) = decoder(**plan).decode(memoryview(long_batch(**options)), 0, BUCKET, projected=False)
    assert step.rows is not None
    assert isinstance(step.rows.rows, pa.RecordBatch)


def test_small_batches_and_those_of_older_schemas_are_decoded() -> None:
    data = memoryview(bytes(batch([1, 2], 0, NEW, 2) + batch(list(range(9_000)), 2)))
    steps = decoder(keep_stored=True).decode(data, 0, BUCKET, projected=False)
    assert [type(step.rows.rows) for step in steps if step.rows is not None] == [pa.RecordBatch, pa.RecordBatch]


def test_a_stored_batch_has_the_rows_that_its_header_promises() -> None:
    data = long_batch()
    struct.pack_into("<i", data, read_header(data).records_start - 4, 399)
    struct.pack_into("<I", data, CRC_POSITION, crc32c(data, CRC_POSITION + 4, len(data)))
    (step,) = decoder(keep_stored=True).decode(memoryview(data), 0, BUCKET, projected=False)
    assert step.error is not None
    assert step.error.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION
    assert "the message has 400 rows, but the header of its batch has 399" in step.error.message
