"""Reading predicates, and which batches they leave out."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.codec.arrow.compression import NO_COMPRESSION
from fluss.codec.batches.arrow_batch import encode_arrow_batch
from fluss.codec.batches.log_batch import read_header
from fluss.codec.batches.pruning import BatchFilter, may_contain
from fluss.codec.batches.statistics import decode_statistics
from fluss.codec.filters import predicate as p
from fluss.codec.filters.predicate import Compound, CompoundFunction, Leaf, LeafFunction, bind, read_predicate
from fluss.model import types as t
from fluss.model.schema import Column, Schema
from fluss.protocol import fluss_api_pb2 as pb
from tests.support.values import reference_log_batches as golden

F = LeafFunction
SCHEMA = Schema((Column("id", t.IntType()), Column("name", t.StringType()), Column("score", t.DoubleType()))).numbered()


def keeps(predicate: p.Predicate, batch: bytes = golden.STATISTICS_JAVA, schema: Schema = SCHEMA) -> bool:
    return BatchFilter(predicate, SCHEMA).keeps(batch, 0, read_header(batch), schema)


def batch_of(name: str, data_type: pa.DataType, values: list[Any]) -> bytes:
    rows = pa.record_batch([pa.array(values, data_type)], names=[name])
    return encode_arrow_batch(rows, 1, NO_COMPRESSION, statistics_columns=[0])


def judge(function: LeafFunction, literals: tuple[Any, ...], values: list[Any], data_type: t.DataType) -> bool:
    arrow = {"INTEGER": pa.int32(), "STRING": pa.utf8(), "DOUBLE": pa.float64()}[data_type.root]
    batch = batch_of("x", arrow, values)
    schema = Schema((Column("x", data_type),)).numbered()
    bound = bind(Leaf(function, 0, literals), schema, schema)
    statistics = decode_statistics(batch, 0, read_header(batch), [data_type])
    assert bound is not None
    assert statistics is not None
    return may_contain(bound, statistics, len(values))


@pytest.mark.parametrize(
    ("function", "literals", "expected"),
    [
        (F.EQUAL, (0,), False), (F.EQUAL, (1,), True), (F.EQUAL, (3,), True), (F.EQUAL, (4,), False),
        (F.NOT_EQUAL, (2,), True), (F.NOT_EQUAL, (9,), True),
        (F.LESS_THAN, (1,), False), (F.LESS_THAN, (2,), True),
        (F.LESS_OR_EQUAL, (0,), False), (F.LESS_OR_EQUAL, (1,), True),
        (F.GREATER_THAN, (3,), False), (F.GREATER_THAN, (2,), True),
        (F.GREATER_OR_EQUAL, (4,), False), (F.GREATER_OR_EQUAL, (3,), True),
        (F.IS_NULL, (), False), (F.IS_NOT_NULL, (), True),
        (F.IN, (0, 9), False), (F.IN, (9, 2, 0), True), (F.IN, (None, 9), False), (F.IN, (None,), False),
        (F.NOT_IN, (1, 2, 3), True), (F.NOT_IN, (7, None), False),
        (F.EQUAL, (None,), False), (F.NOT_EQUAL, (None,), False),
    ],
)  # fmt: skip
def test_leaf_on_integers_1_to_3(function: LeafFunction, literals: tuple[Any, ...], expected: bool) -> None:
    assert judge(function, literals, [1, 2, 3], t.IntType()) is expected


def test_one_value_only() -> None:
    assert judge(F.NOT_EQUAL, (5,), [5, 5], t.IntType()) is False
    assert judge(F.NOT_IN, (4, 5), [5, 5], t.IntType()) is False
    assert judge(F.NOT_IN, (4, 6), [5, 5], t.IntType()) is True


@pytest.mark.parametrize("function", LeafFunction)
def test_only_nulls(function: LeafFunction) -> None:
    literals: tuple[Any, ...] = () if function in (F.IS_NULL, F.IS_NOT_NULL) else ("x",)
    assert judge(function, literals, [None, None], t.StringType()) is (function is F.IS_NULL)


def test_some_nulls() -> None:
    assert judge(F.IS_NULL, (), [1, None], t.IntType())
    assert judge(F.IS_NOT_NULL, (), [1, None], t.IntType())


@pytest.mark.parametrize(
    ("function", "literal", "expected"),
    [
        (F.STARTS_WITH, "ab", True), (F.STARTS_WITH, "b", True), (F.STARTS_WITH, "aa", False),
        (F.STARTS_WITH, "c", False), (F.STARTS_WITH, "", True), (F.STARTS_WITH, "bcde", False),
        (F.CONTAINS, "zzz", True), (F.ENDS_WITH, "zzz", True), (F.EQUAL, "azz", True), (F.EQUAL, "c", False),
    ],
)  # fmt: skip
def test_text_between_abc_and_bcd(function: LeafFunction, literal: str, expected: bool) -> None:
    assert judge(function, (literal,), ["abc", "bcd", "abz"], t.StringType()) is expected


def test_text_is_ordered_by_utf8() -> None:
    values = ["\uffff", "\U00010000 tail"]
    assert judge(F.STARTS_WITH, ("\U00010000",), values, t.StringType())
    assert judge(F.EQUAL, ("\U00010000",), values, t.StringType())


def test_floats_compare_as_in_java() -> None:
    assert judge(F.EQUAL, (math.nan,), [1.0, math.nan], t.DoubleType())
    assert not judge(F.EQUAL, (math.nan,), [1.0, 2.0], t.DoubleType())
    assert not judge(F.EQUAL, (0.0,), [-0.0], t.DoubleType())
    assert judge(F.GREATER_THAN, (math.inf,), [math.nan], t.DoubleType())
    assert judge(F.LESS_THAN, (math.nan,), [math.inf], t.DoubleType())


def test_compounds() -> None:
    yes, no = Leaf(F.EQUAL, 0, (1,)), Leaf(F.EQUAL, 0, (99,))
    for function, children, expected in [
        (CompoundFunction.AND, (yes, yes), True), (CompoundFunction.AND, (yes, no), False),
        (CompoundFunction.OR, (no, yes), True), (CompoundFunction.OR, (no, no), False),
    ]:  # fmt: skip
        assert keeps(Compound(function, children)) is expected
    nested = Compound(CompoundFunction.AND, (yes, Compound(CompoundFunction.OR, (no, Leaf(F.IS_NULL, 2)))))
    assert keeps(nested)


def test_every_doubt_keeps_the_batch() -> None:
    nothing = Leaf(F.EQUAL, 0, (99,))
    assert not keeps(nothing)
    assert keeps(nothing, golden.APPEND_JAVA)  # no statistics
    other_type = Schema((Column("id", t.BigIntType()), *SCHEMA.columns[1:])).numbered()
    assert keeps(nothing, schema=other_type)
    without_column = Schema(SCHEMA.columns[1:])
    assert keeps(nothing, schema=without_column)
    only_names = encode_arrow_batch(golden.ROWS_R3, 1, NO_COMPRESSION, statistics_columns=[1])
    assert keeps(nothing, only_names)  # no statistics of this column
    broken = bytearray(golden.STATISTICS_JAVA)
    broken[0x34] = 2
    assert keeps(nothing, bytes(broken))


def test_unknown_bounds_keep_the_batch() -> None:
    """Java leaves the bounds of CHAR columns out."""
    unknown = bytearray(golden.STATISTICS_JAVA)
    for row in (0x4D, 0x71):
        unknown[row + 1] |= 0b010  # name is null in this row
    assert keeps(Leaf(F.EQUAL, 1, ("zzz",)), bytes(unknown))
    assert not keeps(Leaf(F.EQUAL, 1, ("zzz",)))


def test_columns_are_found_by_id() -> None:
    moved = Schema((SCHEMA.columns[1], SCHEMA.columns[0]))
    rows = golden.ROWS_R3.select([1, 0])
    batch = encode_arrow_batch(rows, 2, NO_COMPRESSION, statistics_columns=[0, 1])
    assert keeps(Leaf(F.EQUAL, 0, (2,)), batch, moved)
    assert not keeps(Leaf(F.EQUAL, 0, (9,)), batch, moved)


@given(
    st.lists(st.none() | st.integers(-5, 5), min_size=1, max_size=6),
    st.sampled_from(LeafFunction).filter(lambda function: function not in (F.STARTS_WITH, F.CONTAINS, F.ENDS_WITH)),
    st.lists(st.none() | st.integers(-6, 6), min_size=1, max_size=3),
)
def test_no_matching_row_is_ever_dropped(
    values: list[int | None], function: LeafFunction, literals: list[int | None]
) -> None:
    if function not in (F.IN, F.NOT_IN):
        literals = [] if function in (F.IS_NULL, F.IS_NOT_NULL) else literals[:1]
    if any(_row_matches(function, value, literals) for value in values):
        assert judge(function, tuple(literals), values, t.IntType())


def _row_matches(function: LeafFunction, value: int | None, literals: list[int | None]) -> bool:
    """SQL's answer for one row; unknown counts as no."""
    if function in (F.IS_NULL, F.IS_NOT_NULL):
        return (value is None) is (function is F.IS_NULL)
    if value is None or (None in literals and (function is not F.IN or value not in literals)):
        return False
    if function is F.IN:
        return value in literals
    if function is F.NOT_IN:
        return value not in literals
    literal = literals[0]
    assert literal is not None
    return {
        F.EQUAL: value == literal, F.NOT_EQUAL: value != literal, F.LESS_THAN: value < literal,
        F.LESS_OR_EQUAL: value <= literal, F.GREATER_THAN: value > literal, F.GREATER_OR_EQUAL: value >= literal,
    }[function]  # fmt: skip


def test_captured_predicates() -> None:
    greater = pb.PbPredicate.FromString(bytes.fromhex("0800120c080410001a06080310002064"))
    assert read_predicate(greater, SCHEMA) == Leaf(F.GREATER_THAN, 0, (100,))
    both = pb.PbPredicate.FromString(
        bytes.fromhex(
            "08011a2908001210080012" + "0c080410001a06080310002001" + "12130800120f080010011a090808100042" + "03636363"
        )
    )
    tree = read_predicate(both, SCHEMA)
    assert tree == Compound(CompoundFunction.AND, (Leaf(F.GREATER_THAN, 0, (1,)), Leaf(F.EQUAL, 1, ("ccc",))))
    assert keeps(tree)
    assert not keeps(read_predicate(greater, SCHEMA))


def _leaf(function: int, *literals: pb.PbLiteralValue, field_id: int = 0) -> pb.PbPredicate:
    return pb.PbPredicate(
        type=0, leaf=pb.PbLeafPredicate(function=function, field_id=field_id, literals=list(literals))
    )


@pytest.mark.parametrize(
    ("data_type", "literal", "value"),
    [
        (t.BooleanType(), {"literal_type": 0, "boolean_value": True}, True),
        (t.TinyIntType(), {"literal_type": 1, "int_value": -1}, -1),
        (t.SmallIntType(), {"literal_type": 2, "int_value": 5}, 5),
        (t.BigIntType(), {"literal_type": 4, "bigint_value": 2**40}, 2**40),
        (t.FloatType(), {"literal_type": 5, "float_value": 0.5}, 0.5),
        (t.DoubleType(), {"literal_type": 6, "double_value": 0.1}, 0.1),
        (t.StringType(), {"literal_type": 7, "string_value": "x"}, "x"),
        (t.CharType(3), {"literal_type": 8, "string_value": "x"}, "x"),
        (t.DecimalType(10, 2), {"literal_type": 9, "decimal_value": -150}, -150),
        (t.DecimalType(20, 2), {"literal_type": 9, "decimal_bytes": b"\xff\x7f"}, -129),
        (t.DateType(), {"literal_type": 10, "bigint_value": 18262}, 18262),
        (t.TimeType(0), {"literal_type": 11, "int_value": 1000}, 1000),
        (t.TimestampType(6), {"literal_type": 12, "timestamp_millis_value": 5, "timestamp_nano_of_millis_value": 7},
         (5, 7)),
        (t.TimestampLtzType(3), {"literal_type": 13, "timestamp_millis_value": 5}, (5, 0)),
        (t.BytesType(), {"literal_type": 14, "binary_value": b"x"}, b"x"),
        (t.BinaryType(2), {"literal_type": 15, "is_null": True}, None),
    ],
)  # fmt: skip
def test_literals(data_type: t.DataType, literal: dict[str, Any], value: Any) -> None:
    schema = Schema((Column("x", data_type),)).numbered()
    message = _leaf(0, pb.PbLiteralValue(**({"is_null": False} | literal)))
    assert read_predicate(message, schema) == Leaf(F.EQUAL, 0, (value,))


def test_in_an_empty_set_is_nothing() -> None:
    nothing = read_predicate(_leaf(11), SCHEMA)
    assert nothing == Leaf(F.IN, 0, ())
    assert not keeps(nothing)


def test_predicates_that_make_no_sense() -> None:
    one = pb.PbLiteralValue(literal_type=3, is_null=False, int_value=1)
    text = pb.PbLiteralValue(literal_type=8, is_null=False, string_value="x")
    deep = _leaf(0, one)
    for _ in range(p.MAX_PREDICATE_DEPTH):
        deep = pb.PbPredicate(type=1, compound=pb.PbCompoundPredicate(function=0, children=[deep]))
    wide = pb.PbPredicate(
        type=1, compound=pb.PbCompoundPredicate(function=0, children=[_leaf(0, one)] * p.MAX_PREDICATE_NODES)
    )
    for message in (
        _leaf(13, one), _leaf(0), _leaf(0, one, one), _leaf(6, one), _leaf(12), _leaf(0, text), _leaf(8, one),
        _leaf(0, one, field_id=9), _leaf(0, pb.PbLiteralValue(literal_type=3, is_null=False)),
        _leaf(0, pb.PbLiteralValue(literal_type=99, is_null=False)), pb.PbPredicate(type=2),
        pb.PbPredicate(type=1, compound=pb.PbCompoundPredicate(function=0)),
        pb.PbPredicate(type=1, compound=pb.PbCompoundPredicate(function=2, children=[_leaf(0, one)])),
        deep, wide, _leaf(11, *[one] * (p.MAX_PREDICATE_LITERALS + 1)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"."):
            read_predicate(message, SCHEMA)
