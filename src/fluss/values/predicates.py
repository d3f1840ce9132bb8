"""Filters as users write them: `(col("id") >= 200) & col("name").starts_with("a")`.

A predicate is an immutable tree of names and values that is not tied to a table. `client.filter` binds it to a schema,
and only then reports wrong names and values. As in SQL, a comparison with null is never true, even under `~`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from fluss.codec.filters.predicate import CompoundFunction, LeafFunction
from fluss.errors import FlussError

_SIGNS = {
    LeafFunction.EQUAL: "==",
    LeafFunction.NOT_EQUAL: "!=",
    LeafFunction.LESS_THAN: "<",
    LeafFunction.LESS_OR_EQUAL: "<=",
    LeafFunction.GREATER_THAN: ">",
    LeafFunction.GREATER_OR_EQUAL: ">=",
}
_METHODS = {
    LeafFunction.IS_NULL: "is_null",
    LeafFunction.IS_NOT_NULL: "is_not_null",
    LeafFunction.STARTS_WITH: "starts_with",
    LeafFunction.CONTAINS: "contains",
    LeafFunction.ENDS_WITH: "ends_with",
    LeafFunction.IN: "is_in",
    LeafFunction.NOT_IN: "not_in",
}
_OPPOSITES = {
    LeafFunction.EQUAL: LeafFunction.NOT_EQUAL,
    LeafFunction.LESS_THAN: LeafFunction.GREATER_OR_EQUAL,
    LeafFunction.GREATER_THAN: LeafFunction.LESS_OR_EQUAL,
    LeafFunction.IS_NULL: LeafFunction.IS_NOT_NULL,
    LeafFunction.IN: LeafFunction.NOT_IN,
}
_INT64 = range(-(2**63), 2**63)


class Predicate:
    """A condition on rows, e.g. `col("id") >= 200`. Combine conditions with `&`, `|` and `~`."""

    __slots__ = ()

    def and_(self, other: Predicate) -> Predicate:
        """The condition that a row satisfies both predicates."""
        return _joined(CompoundFunction.AND, self, other)

    def or_(self, other: Predicate) -> Predicate:
        """The condition that a row satisfies at least one of the two predicates."""
        return _joined(CompoundFunction.OR, self, other)

    def not_(self) -> Predicate:
        """The negation. Rows for which a null makes the condition unknown satisfy neither it nor its negation."""
        return Negation(self)

    def __and__(self, other: Predicate) -> Predicate:
        return self.and_(other)

    def __or__(self, other: Predicate) -> Predicate:
        return self.or_(other)

    def __invert__(self) -> Predicate:
        return self.not_()

    def __bool__(self) -> NoReturn:
        raise TypeError(f"the filter {self!r} has no truth value; combine filters with & | ~, not with and, or, not")

    def column_names(self) -> Iterator[str]:
        """Names of the columns that the condition uses; a column used twice is named twice."""
        raise AssertionError("every subclass of Predicate must implement column_names")


class Comparison(Predicate):
    """A comparison of one column with values."""

    __slots__ = ("column", "function", "values")

    def __init__(self, function: LeafFunction, column: str, values: tuple[Any, ...] = ()) -> None:
        if any(isinstance(value, int) and value not in _INT64 for value in values):
            raise OverflowError(
                f"filter: column {column!r}: an int must fit into 64 bits; pass a Decimal for a DECIMAL column"
            )
        self.function = function
        self.column = column
        self.values = values

    def not_(self) -> Predicate:
        opposite = _OPPOSITES.get(self.function) or _BACKWARDS.get(self.function)
        if opposite is None or self.function in _ORDERING:
            return Negation(self)  # `not (x < 1)` holds for NaN, `x >= 1` does not
        return Comparison(opposite, self.column, self.values)

    def column_names(self) -> Iterator[str]:
        yield self.column

    def __repr__(self) -> str:
        name = f"col({self.column!r})"
        if self.function in _SIGNS:
            return f"({name} {_SIGNS[self.function]} {self.values[0]!r})"
        if self.function in (LeafFunction.IN, LeafFunction.NOT_IN):
            return f"{name}.{_METHODS[self.function]}({list(self.values)!r})"
        return f"{name}.{_METHODS[self.function]}({', '.join(map(repr, self.values))})"


_BACKWARDS = {opposite: function for function, opposite in _OPPOSITES.items()}
_ORDERING = frozenset(
    (
        LeafFunction.LESS_THAN,
        LeafFunction.LESS_OR_EQUAL,
        LeafFunction.GREATER_THAN,
        LeafFunction.GREATER_OR_EQUAL,
    )
)


class Combination(Predicate):
    """A condition that holds if all (AND) or any (OR) of several conditions hold."""

    __slots__ = ("children", "function")

    def __init__(self, function: CompoundFunction, children: tuple[Predicate, ...]) -> None:
        self.function = function
        self.children = children

    def column_names(self) -> Iterator[str]:
        for child in self.children:
            yield from child.column_names()

    def __repr__(self) -> str:
        return f"({(' & ' if self.function is CompoundFunction.AND else ' | ').join(map(repr, self.children))})"


class Negation(Predicate):
    """The negation of a condition for which there is no opposite comparison."""

    __slots__ = ("child",)

    def __init__(self, child: Predicate) -> None:
        self.child = child

    def not_(self) -> Predicate:
        return self.child

    def column_names(self) -> Iterator[str]:
        return self.child.column_names()

    def __repr__(self) -> str:
        return f"~{self.child!r}"


def checked_predicate(predicate: object) -> Predicate:
    """Return the argument; `FlussError` if it is not a predicate."""
    if not isinstance(predicate, Predicate):
        raise FlussError(f"a filter must be a Predicate, e.g. col('id') >= 200, got {predicate!r}")
    return predicate


def _joined(function: CompoundFunction, left: Predicate, right: Predicate) -> Predicate:
    if not isinstance(right, Predicate):
        hint = "; put parentheses around comparisons" if isinstance(right, (ColumnRef, int, str)) else ""
        raise FlussError(f"a filter can only be combined with another filter, got {right!r}{hint}")
    children: list[Predicate] = []
    for side in (left, right):
        if isinstance(side, Combination) and side.function is function:
            children += side.children
        else:
            children.append(side)
    return Combination(function, tuple(children))


class ColumnRef:
    """A column in a filter; made by `col(name)`.

    Values are plain Python values of the column's type. Use a naive `datetime` for TIMESTAMP columns and an aware one
    for TIMESTAMP_LTZ columns. Nulls are found with `is_null()` and `is_not_null()`.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise FlussError(f"a column name must be a string, got {name!r}")
        self._name = name

    @property
    def name(self) -> str:
        """The name of the column."""
        return self._name

    def equal(self, value: object) -> Predicate:
        """The column equals `value`."""
        return Comparison(LeafFunction.EQUAL, self._name, (value,))

    def not_equal(self, value: object) -> Predicate:
        """The column differs from `value`, and is not null."""
        return Comparison(LeafFunction.NOT_EQUAL, self._name, (value,))

    def less_than(self, value: object) -> Predicate:
        """The column is less than `value`."""
        return Comparison(LeafFunction.LESS_THAN, self._name, (value,))

    def less_or_equal(self, value: object) -> Predicate:
        """The column is less than or equal to `value`."""
        return Comparison(LeafFunction.LESS_OR_EQUAL, self._name, (value,))

    def greater_than(self, value: object) -> Predicate:
        """The column is greater than `value`."""
        return Comparison(LeafFunction.GREATER_THAN, self._name, (value,))

    def greater_or_equal(self, value: object) -> Predicate:
        """The column is greater than or equal to `value`."""
        return Comparison(LeafFunction.GREATER_OR_EQUAL, self._name, (value,))

    def is_null(self) -> Predicate:
        """The column is null."""
        return Comparison(LeafFunction.IS_NULL, self._name)

    def is_not_null(self) -> Predicate:
        """The column is not null."""
        return Comparison(LeafFunction.IS_NOT_NULL, self._name)

    def starts_with(self, prefix: str) -> Predicate:
        """The string column starts with `prefix`."""
        return Comparison(LeafFunction.STARTS_WITH, self._name, (prefix,))

    def ends_with(self, suffix: str) -> Predicate:
        """The string column ends with `suffix`."""
        return Comparison(LeafFunction.ENDS_WITH, self._name, (suffix,))

    def contains(self, infix: str) -> Predicate:
        """The string column contains `infix`."""
        return Comparison(LeafFunction.CONTAINS, self._name, (infix,))

    def is_in(self, values: Iterable[object]) -> Predicate:
        """The column equals one of `values`."""
        return Comparison(LeafFunction.IN, self._name, _listed(values))

    def not_in(self, values: Iterable[object]) -> Predicate:
        """The column equals none of `values`, and is not null."""
        return Comparison(LeafFunction.NOT_IN, self._name, _listed(values))

    def isin(self, values: Iterable[object]) -> Predicate:
        """Alias of `is_in(values)`, as spelled in pandas and Spark."""
        return self.is_in(values)

    def between(self, low: object, high: object) -> Predicate:
        """The column is between the two values, both included."""
        return self.greater_or_equal(low) & self.less_or_equal(high)

    __eq__ = equal  # type: ignore[assignment]
    __ne__ = not_equal  # type: ignore[assignment]
    __lt__ = less_than
    __le__ = less_or_equal
    __gt__ = greater_than
    __ge__ = greater_or_equal
    __hash__ = None  # type: ignore[assignment]  # `==` builds a filter, so it cannot be looked up

    def __bool__(self) -> NoReturn:
        raise TypeError(f"column {self.name!r} has no truth value; compare it with a value, then combine with & | ~")

    def __repr__(self) -> str:
        return f"col({self._name!r})"


def _listed(values: Iterable[object]) -> tuple[object, ...]:
    if isinstance(values, (str, bytes)):
        raise FlussError(f"values must be a list, got the string {values!r}; write [{values!r}]")
    return tuple(values)


def col(name: str) -> ColumnRef:
    """The column with this name, for filters: `col("id") >= 200`."""
    return ColumnRef(name)
