"""Arrow tables and data frames of users, brought into the form of a table."""

from __future__ import annotations

import random
import sys
from typing import Any, cast

import pyarrow as pa
import pytest

from fluss.client.input import arrow_input, arrow_validity
from fluss.client.input.arrow_input import ArrowInput
from fluss.client.input.arrow_validity import LARGE_TEXT_BYTES, SMALL_BYTES, validate_array, validate_batch
from fluss.client.input.frame_input import table_of_frame
from fluss.errors import FlussError
from fluss.model.schema import Column, Schema
from fluss.model.types import (
    ArrayType,
    IntType,
    MapType,
    RowField,
    RowType,
    StringType,
    TimestampLtzType,
    TimestampType,
)
from tests.support.runner.lanes import rounds, seed

SCHEMA = Schema(
    (
        Column("id", IntType(nullable=False)),
        Column("name", StringType()),
        Column("tags", ArrayType(IntType())),
        Column("at", TimestampType(3)),
        Column("seen", TimestampLtzType(6)),
    )
)
INPUT = ArrowInput("db.t", SCHEMA)


def frame_table(frame: Any) -> Any:
    return table_of_frame(INPUT, frame, "write_pandas")


def conform(**columns: Any) -> Any:
    return INPUT.conform(pa.record_batch(columns))


def test_a_batch_in_the_tables_form_is_not_copied() -> None:
    batch = pa.RecordBatch.from_pylist([{"id": 1}], schema=INPUT.arrow_schema)
    assert INPUT.conform(batch) is batch


def test_a_batch_that_allows_null_elsewhere_gets_the_tables_schema() -> None:
    """Batches are joined before they leave; with another schema than its neighbours one stopped the writer for good."""
    given = pa.schema([field.with_nullable(True) for field in INPUT.arrow_schema])
    batch = pa.RecordBatch.from_pylist([{"id": 1}], schema=given)
    assert INPUT.conform(batch).schema == INPUT.arrow_schema


def test_columns_are_found_by_name_and_cast() -> None:
    batch = conform(
        name=pa.array(["a", "b"], pa.large_string()).dictionary_encode(),
        id=pa.array([1, 2], pa.int64()),
        tags=pa.array([[1], None], pa.large_list(pa.int64())),
    )
    assert batch.schema.types == INPUT.arrow_schema.types
    assert batch.to_pylist()[0] == {"id": 1, "name": "a", "tags": [1], "at": None, "seen": None}


def test_nested_field_names_do_not_matter() -> None:
    schema = Schema(
        (
            Column("m", MapType(StringType(), IntType())),
            Column("r", RowType((RowField("a", IntType()), RowField("b", ArrayType(StringType()))))),
        )
    )
    batch = pa.record_batch(
        {
            "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
            "r": pa.array([{"a": 1, "b": ["x"]}], pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
        }
    )
    assert ArrowInput("db.t", schema).conform(batch).to_pylist() == batch.to_pylist()


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"id": [1], "age": [2]}, "it has no column 'age'; its columns are id, name, tags, at, seen"),
        ({"id": [2**40]}, "column 'id' expects INT NOT NULL"),
        ({"id": [1.5]}, "column 'id' expects INT NOT NULL"),
        ({"id": ["x"]}, "column 'id' expects INT NOT NULL"),
        (
            {"id": pa.array([1, None], pa.int32())},
            "column 'id' (INT NOT NULL) must not be null, but is null in row 1: write a value",
        ),
        ({"name": ["x"]}, "column 'id' (INT NOT NULL) must not be null, but the rows do not have it: add the column"),
        ({"id": pa.array([[1]])}, "column 'id' expects INT NOT NULL, got list<item: int64>: values of"),
        (
            {"id": [1], "at": pa.array([1], pa.timestamp("us"))},
            "got datetime.datetime(1970, 1, 1, 0, 0, 0, 1) (timestamp[us]) in row 0: it has digits finer than",
        ),
        (
            {"id": [1], "at": pa.array([1], pa.timestamp("ms", "UTC"))},
            "column 'at' expects TIMESTAMP(3), got timestamp[ms, tz=UTC]",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_column_and_type(columns: Any, reason: str) -> None:
    with pytest.raises(FlussError) as caught:
        conform(**columns)
    assert reason in caught.value.message


BAD_TEXT = pa.array([b"caf\xe9"]).view(pa.string())
TEXTS = pa.concat_arrays([pa.array(["a", "b"]), BAD_TEXT, pa.array(["c"])])
NESTED = [
    pa.ListArray.from_arrays(range(5), TEXTS),
    pa.LargeListArray.from_arrays(range(5), TEXTS),
    pa.FixedSizeListArray.from_arrays(TEXTS, 1),
    pa.MapArray.from_arrays(range(5), pa.array([0, 1, 2, 3]), TEXTS),
    pa.MapArray.from_arrays(range(5), TEXTS, pa.array([0, 1, 2, 3])),
    pa.StructArray.from_arrays([TEXTS], ["s"]),
    pa.ListArray.from_arrays(range(5), pa.StructArray.from_arrays([TEXTS], ["s"])),
    pa.StructArray.from_arrays([pa.ListArray.from_arrays(range(5), TEXTS)], ["l"]),
    pa.ListArray.from_arrays(range(5), pa.ListArray.from_arrays(range(5), TEXTS)),
    TEXTS,
]


@pytest.mark.parametrize("small_bytes", [0, SMALL_BYTES])
@pytest.mark.parametrize("array", NESTED, ids=lambda each: str(each.type))
def test_of_a_slice_only_what_can_be_seen_is_validated(
    array: Any, small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a table in a hundred slices is looked at once, and not a hundred times."""
    monkeypatch.setattr(arrow_validity, "SMALL_BYTES", small_bytes)
    for start, count in ((0, 2), (3, 1), (1, 1), (4, 0), (2, 0)):
        validate_array(array.slice(start, count))
    validate_array(array[1:].slice(2, 1))
    for start, count in ((0, 4), (2, 1), (2, 2), (1, 2)):
        with pytest.raises(pa.ArrowInvalid, match="UTF8"):
            validate_array(array.slice(start, count))


def is_valid(check: Any, *arguments: Any, **options: Any) -> bool:
    try:
        check(*arguments, **options)
    except pa.ArrowException:
        return False
    return True


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_texts_are_judged_as_arrow_judges_them(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shorter way for ASCII: texts with any damage, and any slice of them."""
    monkeypatch.setattr(arrow_validity, "LARGE_TEXT_BYTES", 0)
    rng, verdicts = random.Random(seed()), []
    for _ in range(rounds(gate=1500, all_lanes=20_000)):
        count = rng.randint(0, 6)
        given = [rng.choice(["", "a", "abc" * 500, "ä", "a€", None, "x\0", "\x7f"]) for _ in range(count)]
        validity_bits, offsets, content = pa.array([*given, "end"], kind).buffers()
        changed = [bytearray(offsets.to_pybytes()), bytearray(content.to_pybytes())]
        for _ in range(rng.choice([0, 0, 1, 2])):
            buffer = rng.choice(changed)
            buffer[rng.randrange(len(buffer))] = rng.choice([0, 1, 0x41, 0x7F, 0x80, 0xC3, 0xFF])
        buffers = [validity_bits, *map(pa.py_buffer, changed)]
        start = rng.randint(0, count)
        length = rng.randint(0, count - start)
        if not is_valid(pa.Array.from_buffers, kind, length, buffers, offset=start):
            continue  # Arrow makes no such array
        array = pa.Array.from_buffers(kind, length, buffers, offset=start)
        wanted = is_valid(array.validate, full=True)
        assert is_valid(validate_array, array) == wanted, (given, changed, start, len(array))
        batch = pa.RecordBatch.from_arrays([array], ["c"])
        assert is_valid(validate_batch, batch, []) == wanted
        verdicts.append((wanted, arrow_validity._is_large_ascii(array)) if wanted else (wanted, False))
    assert {(True, True), (True, False), (False, False)} <= set(verdicts)


def test_large_texts_take_the_shorter_way() -> None:
    texts = pa.array(["good"] * (LARGE_TEXT_BYTES // 4 + 1))
    assert arrow_validity._is_large_ascii(texts)
    assert not arrow_validity._is_large_ascii(texts[:-1].take(pa.array(range(10))))
    bad = pa.concat_arrays([texts, TEXTS])
    for array in (bad, bad[3:]):
        with pytest.raises(pa.ArrowInvalid, match="UTF8"):
            validate_batch(pa.record_batch({"c": array}), [])
    validate_batch(pa.record_batch({"c": bad[:-3]}), [])


def test_broken_offsets_of_lists_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_validity, "SMALL_BYTES", 0)
    for offsets in ([0, 3, 1], [0, -5, 1]):
        buffers = [None, pa.array(offsets, pa.int32()).buffers()[1]]
        lists = pa.Array.from_buffers(pa.list_(pa.string()), 2, buffers, children=[pa.array(["a", "b", "c"])])
        with pytest.raises(pa.ArrowInvalid):
            validate_array(lists)


def test_columns_in_the_tables_form_do_not_count_as_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was converted is not converted again because of the texts next to it."""
    monkeypatch.setattr(arrow_input, "MAX_KEPT_COPIES_BYTES", 1000)
    rules = ArrowInput("db.t", SCHEMA)
    looked = []
    id_array = rules.fits[0].array

    def counted(array: Any) -> Any:
        looked.append(len(array))
        return id_array(array)

    monkeypatch.setattr(rules.fits[0], "array", counted)
    table = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["x" * 4000] * 3})
    assert [batch.num_rows for batch in rules.batches(pa.concat_tables([table, table]))] == [3, 3]
    assert looked == [3, 3]
    many = pa.table({"id": pa.array(range(500), pa.int64())})
    found = pa.Table.from_batches(rules.batches(pa.concat_tables([many, many])))
    assert found["id"].to_pylist() == [*range(500)] * 2


def test_other_things_than_arrow_are_refused() -> None:
    with pytest.raises(FlussError, match=r"pyarrow\.RecordBatch, got dict"):
        INPUT.conform(cast(Any, {"id": 1}))
    with pytest.raises(FlussError, match=r"pyarrow\.Table, got list"):
        INPUT.batches(cast(Any, []))
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([1])], ["id", "id"])
    with pytest.raises(FlussError, match="column 'id' is duplicated: pass it once"):
        INPUT.conform(twice)


def test_data_frames_need_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FlussError, match=r"pip install 'flusspy\[pandas\]'"):
        frame_table(object())


def test_data_frames_are_converted() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is an optional dependency")
    frame = pandas.DataFrame({"name": ["a", None], "id": [1, 2]}, index=[7, 8])
    table = frame_table(frame)
    rows = [row for batch in INPUT.batches(table) for row in batch.to_pylist()]
    assert [(row["id"], row["name"]) for row in rows] == [(1, "a"), (2, None)]
    with pytest.raises(FlussError, match="no column 'x'"):
        frame_table(pandas.DataFrame({"x": [1]}))
    with pytest.raises(FlussError, match="'id' expects INT NOT NULL, got string"):
        INPUT.batches(frame_table(pandas.DataFrame({"id": ["x"]})))


def test_an_array_that_cannot_be_read_is_named_with_column_and_type() -> None:
    """Offsets that are out of order: there is no row to show."""
    broken = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\5\0\0\0\1\0\0\0"), pa.py_buffer(b"abcde")]
    )
    with pytest.raises(
        FlussError, match=r"column 'name' expects STRING, but its string array is invalid \(.*\): correct"
    ):
        INPUT.conform(pa.record_batch({"id": pa.array([1, 2], pa.int32()), "name": broken}))
