"""Filters of Fluss as expressions of Iceberg, used to leave out files.

An expression may keep files without a matching row, but never drop a file with one: conditions that Iceberg cannot
express, or compares differently, become "always true". Readers filter the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyiceberg.expressions
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, Or
from pyiceberg.expressions.literals import DateLiteral, TimestampLiteral
from pyiceberg.types import LongType
from pyiceberg.utils.decimal import unscaled_to_decimal

from fluss.codec.filters.predicate import Compound, CompoundFunction, Leaf, LeafFunction, Predicate
from fluss.lake.tables.iceberg.types import LAKE_TIME_PRECISION
from fluss.model.schema import Column, Schema
from fluss.model.types import DataType, DecimalType

# Their constructors take a name and literals, which type checkers cannot see (they are pydantic models).
expressions: Any = pyiceberg.expressions

_COMPARISONS: dict[LeafFunction, Callable[[str, object], object]] = {
    LeafFunction.EQUAL: expressions.EqualTo,
    LeafFunction.LESS_THAN: expressions.LessThan,
    LeafFunction.LESS_OR_EQUAL: expressions.LessThanOrEqual,
    LeafFunction.GREATER_THAN: expressions.GreaterThan,
    LeafFunction.GREATER_OR_EQUAL: expressions.GreaterThanOrEqual,
}
_LITERAL_ROOTS = frozenset(("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "CHAR", "STRING", "BINARY", "BYTES"))


def to_expression(predicate: Predicate | None, schema: Schema, lake_columns: set[str]) -> BooleanExpression:
    """The expression for planning; conditions on columns that the lake state lacks are ignored."""
    if predicate is None:
        return AlwaysTrue()
    if isinstance(predicate, Compound):
        children = [to_expression(child, schema, lake_columns) for child in predicate.children]
        join = And if predicate.function is CompoundFunction.AND else Or
        joined: BooleanExpression = children[0]
        for child in children[1:]:
            joined = join(joined, child)
        return joined
    column = next((each for each in schema.columns if each.column_id == predicate.column_id), None)
    return AlwaysTrue() if column is None or column.name not in lake_columns else _leaf(predicate, column)


def _leaf(leaf: Leaf, column: Column) -> Any:
    if leaf.function is LeafFunction.IS_NULL:
        return expressions.IsNull(column.name)
    if leaf.function is LeafFunction.IS_NOT_NULL:
        return expressions.NotNull(column.name)
    literals = [_literal(value, column.data_type) for value in leaf.literals]
    if None in literals or not literals:
        return AlwaysTrue()
    if leaf.function in _COMPARISONS:
        return _COMPARISONS[leaf.function](column.name, literals[0])
    if leaf.function is LeafFunction.IN:
        return expressions.In(column.name, literals)
    if leaf.function is LeafFunction.STARTS_WITH:
        return expressions.StartsWith(column.name, literals[0])
    return AlwaysTrue()


def _literal(value: Any, data_type: DataType) -> object:
    """The value for pyiceberg, or None if pyiceberg would compare it differently.

    FLOAT and DOUBLE are left out because of NaN, which statistics ignore; so are times with digits that the lake lacks.
    Dates and times are given as the numbers in the statistics: Python's own types end with the year 9999.
    """
    root = data_type.root
    if value is None:
        return None
    if root in _LITERAL_ROOTS:
        return value
    if isinstance(data_type, DecimalType):
        return unscaled_to_decimal(value, data_type.scale)  # all digits; Decimal's own arithmetic keeps 28
    if root == "DATE":
        return DateLiteral(value)
    if getattr(data_type, "precision", LAKE_TIME_PRECISION + 1) > LAKE_TIME_PRECISION:
        return None
    if root.startswith("TIMESTAMP"):
        millis, nanos = value
        micros = millis * 1000 + nanos // 1000
        return TimestampLiteral(micros) if LongType.min <= micros <= LongType.max else None
    return None
