"""A filter bound to a table: the message for the server, and the rows of a batch that satisfy it.

The server only skips whole batches by their statistics, and older servers skip none, so every row is checked here
again: `RowFilter.mask` is exact. `RowFilter.pushed` is a message for the server that keeps at least every matching row.
The two differ where the orders differ: statistics sort -0.0 before 0.0 and NaN after everything, while comparisons of
rows follow IEEE (as in Python, pandas and Arrow). Parts that the protocol cannot express are dropped from a
conjunction; a disjunction with such a part is not sent.

Immutable after construction, used by any thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.filter.literals import MAX_LITERALS, arrow_literal, check_text, wire_literal
from fluss.codec.arrow.types import to_arrow_type
from fluss.codec.filters.predicate import CompoundFunction, LeafFunction
from fluss.errors import FlussError
from fluss.model.schema import Column, Schema
from fluss.model.types import TimeType
from fluss.protocol import fluss_api_pb2 as pb
from fluss.values.predicates import Combination, Comparison, Negation, Predicate, checked_predicate

_LEAF, _COMPOUND = 0, 1
# The reference sends short lists as equalities, which every server understands.
_MAX_LIST_AS_EQUALITIES = 20
_FLOAT_ROOTS = frozenset(("FLOAT", "DOUBLE"))
_NESTED_ROOTS = frozenset(("ARRAY", "MAP", "ROW"))
_TEXT_FUNCTIONS: dict[LeafFunction, Callable[..., pa.Array]] = {
    LeafFunction.STARTS_WITH: pc.starts_with,
    LeafFunction.ENDS_WITH: pc.ends_with,
    LeafFunction.CONTAINS: pc.match_substring,
}
_COMPARISONS: dict[LeafFunction, Callable[..., pa.Array]] = {
    LeafFunction.EQUAL: pc.equal,
    LeafFunction.NOT_EQUAL: pc.not_equal,
    LeafFunction.LESS_THAN: pc.less,
    LeafFunction.LESS_OR_EQUAL: pc.less_equal,
    LeafFunction.GREATER_THAN: pc.greater,
    LeafFunction.GREATER_OR_EQUAL: pc.greater_equal,
}
_NULL_TESTS = frozenset((LeafFunction.IS_NULL, LeafFunction.IS_NOT_NULL))
_LISTS = frozenset((LeafFunction.IN, LeafFunction.NOT_IN))

Columns = Callable[[int], pa.Array]
"""The Arrow column for a column id, made of nulls when the batch does not have it."""


class RowFilter:
    """A predicate on the columns of `schema`; `FlussError` when it does not fit them."""

    def __init__(self, predicate: Predicate, schema: Schema) -> None:
        self.predicate = predicate = checked_predicate(predicate)
        names = list(dict.fromkeys(predicate.column_names()))
        self._columns = {name: _column(schema, name) for name in names}
        self.column_ids = frozenset(column.column_id for column in self._columns.values())
        self._judge = self._compile(predicate)
        self.pushed: pb.PbPredicate | None = self._push(predicate)

    def mask(self, columns: Columns) -> pa.Array:
        """One bool per row; nulls (unknown) count as false."""
        return self._judge(columns)

    # ---- checking rows ----

    def _compile(self, node: Predicate) -> Callable[[Columns], pa.Array]:
        if isinstance(node, Negation):
            inner = self._compile(node.child)
            return lambda columns: pc.invert(inner(columns))
        if isinstance(node, Combination):
            children = [self._compile(child) for child in node.children]
            join = pc.and_kleene if node.function is CompoundFunction.AND else pc.or_kleene
            return lambda columns: _folded(join, [child(columns) for child in children])
        assert isinstance(node, Comparison)
        return self._compile_leaf(node)

    def _compile_leaf(self, leaf: Comparison) -> Callable[[Columns], pa.Array]:
        column, function, values = self._columns[leaf.column], leaf.function, leaf.values
        column_id = column.column_id
        if function is LeafFunction.IS_NULL:
            return lambda columns: columns(column_id).is_null()
        if function is LeafFunction.IS_NOT_NULL:
            return lambda columns: columns(column_id).is_valid()
        if column.data_type.root in _NESTED_ROOTS:
            raise FlussError(
                f"column {column.name!r} is {column.data_type}: it only supports is_null() and is_not_null()"
            )
        if function in _TEXT_FUNCTIONS:
            text = check_text(column, values[0], function.name)
            test = _TEXT_FUNCTIONS[function]
            return lambda columns: test(columns(column_id), text)
        if function in _LISTS:
            return _membership(column, values, negated=function is LeafFunction.NOT_IN)
        literal = arrow_literal(column, values[0])
        compare = _COMPARISONS[function]
        if column.data_type.root == "BOOLEAN":  # Arrow orders numbers only
            number = literal.cast(pa.int8())
            return lambda columns: compare(columns(column_id).cast(pa.int8()), number)
        return lambda columns: compare(columns(column_id), literal)

    # ---- the message for the server ----

    def _push(self, node: Predicate) -> pb.PbPredicate | None:
        if isinstance(node, Negation):
            return self._push_negated(node.child)
        if isinstance(node, Combination):
            return _pushed_combination(node.function, [self._push(child) for child in node.children])
        assert isinstance(node, Comparison)
        return self._push_leaf(node)

    def _push_negated(self, child: Predicate) -> pb.PbPredicate | None:
        """Negate by De Morgan; `not (x < 1)` is sent as `x >= 1` if NaN is impossible."""
        if isinstance(child, Combination):
            flipped = CompoundFunction.OR if child.function is CompoundFunction.AND else CompoundFunction.AND
            return _pushed_combination(flipped, [self._push(inner.not_()) for inner in child.children])
        if not isinstance(child, Comparison) or child.function not in _FLIPPED:
            return None
        if self._columns[child.column].data_type.root in _FLOAT_ROOTS:
            return None
        return self._push_leaf(Comparison(_FLIPPED[child.function], child.column, child.values))

    def _push_leaf(self, leaf: Comparison) -> pb.PbPredicate | None:
        column, function = self._columns[leaf.column], leaf.function
        if column.data_type.root in _NESTED_ROOTS:
            return None
        if function in _NULL_TESTS:
            return _pb_leaf(function, column, [])
        if function in _LISTS and not leaf.values:
            return None
        if _is_fine_time(column):
            if function in _COARSE_MISLEADS:
                return None
            function = _COARSE.get(function, function)
        literals = [wire_literal(column, value) for value in leaf.values]
        if column.data_type.root in _FLOAT_ROOTS:
            return _pushed_float(function, column, [float(value) for value in leaf.values])
        if function in _LISTS and len(literals) <= _MAX_LIST_AS_EQUALITIES:
            equal = LeafFunction.EQUAL if function is LeafFunction.IN else LeafFunction.NOT_EQUAL
            join = CompoundFunction.OR if function is LeafFunction.IN else CompoundFunction.AND
            return _pushed_combination(join, [_pb_leaf(equal, column, [literal]) for literal in literals])
        return _pb_leaf(function, column, literals)


_FLIPPED = {
    LeafFunction.LESS_THAN: LeafFunction.GREATER_OR_EQUAL,
    LeafFunction.LESS_OR_EQUAL: LeafFunction.GREATER_THAN,
    LeafFunction.GREATER_THAN: LeafFunction.LESS_OR_EQUAL,
    LeafFunction.GREATER_OR_EQUAL: LeafFunction.LESS_THAN,
}


# Times are sent in milliseconds, whatever their precision: equal milliseconds then leave the order open.
_COARSE = {
    LeafFunction.LESS_THAN: LeafFunction.LESS_OR_EQUAL,
    LeafFunction.GREATER_THAN: LeafFunction.GREATER_OR_EQUAL,
}
_COARSE_MISLEADS = frozenset((LeafFunction.NOT_EQUAL, LeafFunction.NOT_IN))


def _is_fine_time(column: Column) -> bool:
    return isinstance(column.data_type, TimeType) and column.data_type.precision > 3


def _column(schema: Schema, name: str) -> Column:
    try:
        return schema.columns[schema.position(name)]
    except KeyError as error:
        raise FlussError(f"filter: {error.args[0]}") from None


def _folded(join: Callable[[pa.Array, pa.Array], pa.Array], masks: list[pa.Array]) -> pa.Array:
    result = masks[0]
    for mask in masks[1:]:
        result = join(result, mask)
    return result


def _membership(column: Column, values: tuple[object, ...], *, negated: bool) -> Callable[[Columns], pa.Array]:
    """True, false, or null for a null value. NaN is never a member, as with `==`."""
    if len(values) > MAX_LITERALS:
        raise FlussError(f"a filter must list at most {MAX_LITERALS} values, got {len(values)}")
    literals = [arrow_literal(column, value) for value in values]
    wanted = pa.array(
        [literal.as_py() if column.data_type.root in _FLOAT_ROOTS else literal for literal in literals],
        to_arrow_type(column.data_type),
    )
    if column.data_type.root in _FLOAT_ROOTS:
        zeros = [0.0, -0.0] if any(value == 0 for value in wanted.to_pylist()) else []
        wanted = pa.concat_arrays([wanted, pa.array(zeros, wanted.type)])
        wanted = wanted.filter(pc.invert(pc.is_nan(wanted)))

    def judge(columns: Columns) -> pa.Array:
        found = columns(column.column_id)
        member = pc.is_in(found, value_set=wanted)
        return pc.if_else(found.is_valid(), pc.invert(member) if negated else member, None)

    return judge


def _pb_leaf(function: LeafFunction, column: Column, literals: list[pb.PbLiteralValue]) -> pb.PbPredicate:
    leaf = pb.PbLeafPredicate(function=function, field_id=column.column_id, literals=literals)
    return pb.PbPredicate(type=_LEAF, leaf=leaf)


def _pushed_combination(function: CompoundFunction, children: list[pb.PbPredicate | None]) -> pb.PbPredicate | None:
    said = [child for child in children if child is not None]
    if not said or (function is CompoundFunction.OR and len(said) < len(children)):
        return None
    if len(said) == 1:
        return said[0]
    return pb.PbPredicate(type=_COMPOUND, compound=pb.PbCompoundPredicate(function=function, children=said))


def _pushed_float(function: LeafFunction, column: Column, values: list[float]) -> pb.PbPredicate | None:
    """The comparison, widened so that the order of statistics (-0.0 < 0.0 < ... < NaN) loses no row equal by IEEE."""
    if any(math.isnan(value) for value in values) or function in (LeafFunction.NOT_EQUAL, LeafFunction.NOT_IN):
        return None
    if function in (LeafFunction.LESS_OR_EQUAL, LeafFunction.LESS_THAN):
        wide = [0.0 if value == 0 else value for value in values]
    elif function in (LeafFunction.GREATER_OR_EQUAL, LeafFunction.GREATER_THAN):
        wide = [-0.0 if value == 0 else value for value in values]
    else:
        wide = [same for value in values for same in ((-0.0, 0.0) if value == 0 else (value,))]
    literals = [wire_literal(column, value) for value in wide]
    if len(literals) == 1:
        function = LeafFunction.EQUAL if function is LeafFunction.IN else function
        return _pb_leaf(function, column, literals)
    if len(literals) > _MAX_LIST_AS_EQUALITIES:
        return _pb_leaf(LeafFunction.IN, column, literals)
    return _pushed_combination(
        CompoundFunction.OR, [_pb_leaf(LeafFunction.EQUAL, column, [literal]) for literal in literals]
    )
