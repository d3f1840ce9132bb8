"""Aggregation functions of columns."""

from __future__ import annotations

import pytest

from fluss.model.aggregation import AGGREGATION_FUNCTIONS, broken_function_rule, normalized_function
from fluss.model.types import BooleanType, BytesType, CharType, DataType, DateType, DecimalType, IntType, StringType


def test_names_in_any_spelling() -> None:
    assert normalized_function({"type": "Last-Value_Ignore-Nulls"}) == {"type": "last_value_ignore_nulls"}
    assert normalized_function({"type": "sum", "parameters": {}}) == {"type": "sum"}
    assert normalized_function({"type": "listagg", "parameters": {"delimiter": ";"}}) == {
        "type": "listagg",
        "parameters": {"delimiter": ";"},
    }


@pytest.mark.parametrize("node", [{"type": "median"}, {}, "sum", None, {"type": 3}])
def test_unknown_functions_are_dropped(node: object) -> None:
    assert normalized_function(node) is None


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("sum", IntType(), StringType()),
        ("product", DecimalType(precision=5, scale=2), DateType()),
        ("max", DateType(), BytesType()),
        ("min", CharType(), BooleanType()),
        ("listagg", StringType(), IntType()),
        ("string_agg", CharType(), BytesType()),
        ("bool_and", BooleanType(), IntType()),
        ("bool_or", BooleanType(), StringType()),
        ("rbm32", BytesType(), StringType()),
        ("rbm64", BytesType(), IntType()),
    ],
)
def test_types(name: str, good: DataType, bad: DataType) -> None:
    assert broken_function_rule({"type": name}, good) is None
    assert name in str(broken_function_rule({"type": name}, bad))


def test_parameters() -> None:
    text = StringType()
    assert broken_function_rule({"type": "listagg", "parameters": {"delimiter": "|"}}, text) is None
    assert "empty" in str(broken_function_rule({"type": "listagg", "parameters": {"delimiter": ""}}, text))
    assert "'x'" in str(broken_function_rule({"type": "listagg", "parameters": {"x": "1"}}, text))
    assert "delimiter" in str(broken_function_rule({"type": "sum", "parameters": {"delimiter": ","}}, IntType()))


def test_functions_for_every_type() -> None:
    assert {name for name, roots in AGGREGATION_FUNCTIONS.items() if roots is None} == {
        "last_value",
        "last_value_ignore_nulls",
        "first_value",
        "first_value_ignore_nulls",
    }
