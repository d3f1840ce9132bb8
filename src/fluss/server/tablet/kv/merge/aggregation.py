"""The aggregation merge engine: each column has a function of the old and the new value.

Functions work on logical values and never get a null: `_lift` has the rules for nulls. Integers wrap around at the
width of their column; a decimal that does not fit its precision becomes null.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from fluss.codec.roaring.bitmap32 import union32
from fluss.codec.roaring.bitmap64 import union64
from fluss.errors import ErrorCode, FlussError
from fluss.model.schema import Column
from fluss.model.types import DataType, DecimalType
from fluss.server.tablet.buckets.kv_rules import KvRules
from fluss.server.tablet.kv.merge.partial_update import PartialUpdateMerger
from fluss.server.tablet.kv.merge.put_batch import Row

Aggregate: TypeAlias = Callable[[Any, Any], object]
_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
_FLOAT = struct.Struct("<f")
DEFAULT_DELIMITER = ","
DEFAULT_FUNCTION = "last_value_ignore_nulls"


class AggregationMerger:
    """Aggregates column by column; the first row of a key is stored as it was sent."""

    def __init__(self, rules: KvRules, targets: frozenset[int] | None) -> None:
        self._partial = None if targets is None else PartialUpdateMerger(rules, targets)
        self._functions = [
            _keep_old if targets is not None and position not in targets else column_function(column)
            for position, column in enumerate(rules.entry.schema.columns)
        ]

    def insert(self, new: Row) -> Row:
        return new

    def update(self, old: Row, new: Row) -> Row:
        return [function(a, b) for function, a, b in zip(self._functions, old, new, strict=True)]

    def delete(self, old: Row) -> Row | None:
        return None if self._partial is None else self._partial.delete(old)


def column_function(column: Column) -> Aggregate:
    """The aggregate function of a column; either of its two arguments may be null."""
    function: Mapping[str, Any] = column.agg_function or {"type": DEFAULT_FUNCTION}
    name = function["type"]
    if name == "last_value":
        return _keep_new
    if name == "last_value_ignore_nulls":
        return _keep_new_unless_null
    if name in ("first_value", "first_value_ignore_nulls"):
        return _keep_old_unless_null
    if name in ("listagg", "string_agg"):
        return _lift(_joined(function.get("parameters", {}).get("delimiter", DEFAULT_DELIMITER)))
    if name in ("max", "min"):
        return _lift(_larger if name == "max" else _smaller)
    if name in ("bool_and", "bool_or"):
        return _lift(operator.and_ if name == "bool_and" else operator.or_)
    if name in ("sum", "product"):
        return _lift(_arithmetic(name, column.data_type))
    if name in ("rbm32", "rbm64"):
        return _lift(union32 if name == "rbm32" else union64)
    raise FlussError(
        f"aggregation function {name!r} of column {column.name} is not supported by this version of the server",
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )


def _keep_old(old: object, new: object) -> object:
    return old


def _keep_new(old: object, new: object) -> object:
    return new


def _keep_new_unless_null(old: object, new: object) -> object:
    return old if new is None else new


def _keep_old_unless_null(old: object, new: object) -> object:
    return new if old is None else old


def _lift(function: Aggregate) -> Aggregate:
    """Extend a function to nulls: if one value is null, the result is the other one."""

    def aggregate(old: object, new: object) -> object:
        if old is None or new is None:
            return new if old is None else old
        return function(old, new)

    return aggregate


def _joined(delimiter: str) -> Aggregate:
    return lambda old, new: f"{old}{delimiter}{new}"


def _order(value: object) -> Any:
    """A sort key: NaN is larger than every number, and minus zero is smaller than zero, as in Java."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1.0, value))
    return value


def _larger(old: object, new: object) -> object:
    return new if _order(new) > _order(old) else old


def _smaller(old: object, new: object) -> object:
    return new if _order(new) < _order(old) else old


def _arithmetic(name: str, data_type: DataType) -> Aggregate:
    operation = operator.add if name == "sum" else operator.mul
    if isinstance(data_type, DecimalType):
        return _decimal_sum(data_type) if name == "sum" else _decimal_product(data_type)
    if data_type.root == "FLOAT":
        return lambda old, new: _single(operation(old, new))
    if data_type.root == "DOUBLE":
        return operation
    bits = _INTEGER_BITS[data_type.root]
    half, mask = 1 << (bits - 1), (1 << bits) - 1
    return lambda old, new: ((operation(old, new) + half) & mask) - half


def _single(value: float) -> float:
    """A double rounded to a float, which is the result of single-precision arithmetic."""
    try:
        return float(_FLOAT.unpack(_FLOAT.pack(value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _decimal_sum(data_type: DecimalType) -> Aggregate:
    limit = 10**data_type.precision

    def add(old: int, new: int) -> int | None:
        total = old + new
        return total if -limit < total < limit else None

    return add


def _decimal_product(data_type: DecimalType) -> Aggregate:
    limit, unit = 10**data_type.precision, 10**data_type.scale

    def multiply(old: int, new: int) -> int | None:
        product = old * new
        rounded = (2 * abs(product) + unit) // (2 * unit)  # halves are rounded away from zero
        return (rounded if product >= 0 else -rounded) if rounded < limit else None

    return multiply
