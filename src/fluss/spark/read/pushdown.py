"""Spark's filters as conditions that this package evaluates exactly.

Spark does not check a filter again that a source takes, so a filter is taken only if its result is the same for every
possible value; the others are given back (`Pushed.refused`) and Spark applies them. Spark and the client differ here:

| | Spark | client |
|---|---|---|
| NaN | equals itself, greater than everything | IEEE: equals nothing |
| digits below a microsecond | cut before comparing | compared |
| fields of structs, TIME | compared | not offered |

`NaN > x` becomes `not (NaN <= x)`, true on both sides. Filters with values that the column cannot hold are given back.

Taken filters have three uses: conditions on partition columns alone choose partitions, equalities on keys become
lookups, and all filters are sent to the server (which leaves out batches by their statistics) and applied to every row.

Pure functions; `Pushed` can be pickled, since it travels to the tasks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark

from fluss.client.engine.rows import RowFilter
from fluss.codec.arrow.types import to_arrow_type
from fluss.errors import FlussError
from fluss.model.schema import Column, Schema
from fluss.model.types import TimestampLtzType, TimestampType
from fluss.values.predicates import ColumnRef, Predicate, col

MICROSECOND_PRECISION = 6
MAX_LOOKUP_KEYS = 10_000
_FLOATS = frozenset(("FLOAT", "DOUBLE"))
_NESTED = frozenset(("ARRAY", "MAP", "ROW"))


@dataclass(frozen=True)
class Pushed:
    """The filters taken: `conditions` must all be true, `allowed` has the values to which equalities fix columns."""

    conditions: tuple[Predicate, ...] = ()
    allowed: tuple[tuple[str, tuple[object, ...]], ...] = ()
    refused: tuple[spark.Filter, ...] = ()

    @property
    def predicate(self) -> Predicate | None:
        """All conditions joined by `and`; None if there are none."""
        return reduce(Predicate.and_, self.conditions) if self.conditions else None

    def without(self, columns: Iterable[str]) -> Predicate | None:
        """The conditions that also use other columns: those that remain if all rows match on these columns."""
        known = set(columns)
        left = [condition for condition in self.conditions if not set(condition.column_names()) <= known]
        return reduce(Predicate.and_, left) if left else None

    def only(self, columns: Iterable[str]) -> Predicate | None:
        """The conditions that use only these columns."""
        known = set(columns)
        said = [condition for condition in self.conditions if set(condition.column_names()) <= known]
        return reduce(Predicate.and_, said) if said else None

    def keys(self, names: Sequence[str]) -> list[tuple[object, ...]] | None:
        """Every combination of values of these columns; None if a column is not fixed or there are too many of them."""
        values = dict(self.allowed)
        if not names or any(name not in values for name in names):
            return None
        if math.prod(len(values[name]) for name in names) > MAX_LOOKUP_KEYS:
            return None
        return list(itertools.product(*(values[name] for name in names)))


def push(filters: Iterable[spark.Filter], schema: Schema, columns: Iterable[str]) -> Pushed:
    """Take the filters that can be evaluated exactly on these columns of a table."""
    known = {column.name: column for column in schema.columns if column.name in set(columns)}
    conditions: list[Predicate] = []
    allowed: dict[str, tuple[object, ...]] = {}
    refused: list[spark.Filter] = []
    for each in filters:
        condition = _condition(each, known, schema)
        if condition is None:
            refused.append(each)
            continue
        conditions.append(condition)
        equality = _equality(each, known)
        if equality is not None:
            name, values = equality
            before = allowed.get(name)
            allowed[name] = values if before is None else tuple(value for value in values if value in before)
    return Pushed(tuple(conditions), tuple(sorted(allowed.items())), tuple(refused))


def _condition(each: spark.Filter, known: dict[str, Column], schema: Schema) -> Predicate | None:
    """The predicate of a filter; None if the column cannot hold the value or its type lacks the comparison."""
    types = {column.column_id: to_arrow_type(column.data_type) for column in schema.columns}
    try:
        condition = _translated(each, known)
        if condition is not None:
            RowFilter(condition, schema).mask(lambda column_id: pa.array([], types[column_id]))
    except (FlussError, OverflowError, pa.ArrowException):
        return None
    return condition


def _translated(each: spark.Filter, known: dict[str, Column]) -> Predicate | None:
    if isinstance(each, spark.Not):
        return _negated(each.child, known)
    column = _column(each, known)
    if column is None:
        return None
    if isinstance(each, spark.IsNull):
        return col(column.name).is_null()
    if isinstance(each, spark.IsNotNull):
        return col(column.name).is_not_null()
    if not _is_comparable(column):
        return None
    if isinstance(each, spark.EqualNullSafe) and each.value is None:
        return col(column.name).is_null()
    if isinstance(each, spark.In):
        return _member(column, each.value)
    value: Any = each.value  # type: ignore[attr-defined]
    if value is None or _is_nan(value):
        return None
    return _comparison(each, column, value)


def _comparison(each: spark.Filter, column: Column, value: object) -> Predicate | None:
    reference = col(column.name)
    is_float = column.data_type.root in _FLOATS
    if isinstance(each, (spark.EqualTo, spark.EqualNullSafe)):
        return reference.equal(value)
    if isinstance(each, spark.LessThan):
        return reference.less_than(value)
    if isinstance(each, spark.LessThanOrEqual):
        return reference.less_or_equal(value)
    if isinstance(each, spark.GreaterThan):
        return reference.less_or_equal(value).not_() if is_float else reference.greater_than(value)
    if isinstance(each, spark.GreaterThanOrEqual):
        return reference.less_than(value).not_() if is_float else reference.greater_or_equal(value)
    tell = _TEXTS.get(type(each))
    return None if tell is None else tell(reference, value)


_TEXTS: dict[type[spark.Filter], Callable[[ColumnRef, Any], Predicate]] = {
    spark.StringStartsWith: lambda reference, value: reference.starts_with(value),
    spark.StringEndsWith: lambda reference, value: reference.ends_with(value),
    spark.StringContains: lambda reference, value: reference.contains(value),
}


def _negated(child: spark.Filter, known: dict[str, Column]) -> Predicate | None:
    """The predicate of `not child`: rows for which the child is false, which excludes rows where it is null."""
    if isinstance(child, spark.EqualNullSafe):  # never unknown, so its negation is true for nulls
        equal, column = _translated(child, known), _column(child, known)
        if equal is None or column is None:
            return None
        return equal.not_() if child.value is None else equal.not_().or_(col(column.name).is_null())
    if isinstance(child, spark.In) and any(value is None for value in child.value):
        return None  # `not in (1, null)` is never true
    inner = _translated(child, known)
    return None if inner is None else inner.not_()


def _member(column: Column, values: Sequence[object]) -> Predicate | None:
    """The predicate of an `IN` list; a null in the list matches nothing."""
    wanted = [value for value in values if value is not None]
    if not wanted or any(map(_is_nan, wanted)):
        return None
    return col(column.name).is_in(wanted)


def _column(each: spark.Filter, known: dict[str, Column]) -> Column | None:
    path: tuple[str, ...] = getattr(each, "attribute", ())
    return known.get(path[0]) if len(path) == 1 else None


def _is_comparable(column: Column) -> bool:
    data_type = column.data_type
    if isinstance(data_type, (TimestampType, TimestampLtzType)):
        return data_type.precision <= MICROSECOND_PRECISION
    return data_type.root not in _NESTED and data_type.root != "TIME_WITHOUT_TIME_ZONE"


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _equality(each: spark.Filter, known: dict[str, Column]) -> tuple[str, tuple[object, ...]] | None:
    """The values that a filter allows for a column. Floats have two zeros, so they cannot be keys."""
    column = _column(each, known)
    if column is None or column.data_type.root in _FLOATS:
        return None
    if isinstance(each, spark.In):
        return column.name, tuple(dict.fromkeys(value for value in each.value if value is not None))
    if isinstance(each, (spark.EqualTo, spark.EqualNullSafe)) and each.value is not None:
        return column.name, (each.value,)
    return None
