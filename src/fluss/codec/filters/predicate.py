"""The predicates of fetch requests, as plain values.

A predicate is a tree of comparisons of one column with literals. It names columns by column id, which survives schema
changes. `read_predicate` takes the wire message (any object with its fields, so that this module needs no protobuf);
`bind` resolves ids to positions in the schema of a batch and prepares literals for comparison.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from fluss.model.schema import Column, Schema
from fluss.model.types import DataType, DecimalType

MAX_PREDICATE_DEPTH = 32
# Every node costs time for every batch that a fetch examines. A larger filter is ignored, so that no batch is left out.
MAX_PREDICATE_NODES = 512
MAX_PREDICATE_LITERALS = 65536


class LeafFunction(enum.IntEnum):
    """The test that a leaf applies to its column; the numbers are on the wire."""

    EQUAL = 0
    NOT_EQUAL = 1
    LESS_THAN = 2
    LESS_OR_EQUAL = 3
    GREATER_THAN = 4
    GREATER_OR_EQUAL = 5
    IS_NULL = 6
    IS_NOT_NULL = 7
    STARTS_WITH = 8
    CONTAINS = 9
    ENDS_WITH = 10
    IN = 11
    NOT_IN = 12


class CompoundFunction(enum.IntEnum):
    """The operator that joins the children of a node; the numbers are on the wire."""

    AND = 0
    OR = 1


@dataclass(frozen=True)
class Leaf:
    """A test of the column with this id. Literals are logical values (`codec.rows.values`), or None for null."""

    function: LeafFunction
    column_id: int
    literals: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Compound:
    """A conjunction (AND) or disjunction (OR) of the children."""

    function: CompoundFunction
    children: tuple[Leaf | Compound, ...]


Predicate: TypeAlias = Leaf | Compound

_TEXT_ROOTS = frozenset(("CHAR", "STRING"))
_TEXT_FUNCTIONS = frozenset((LeafFunction.STARTS_WITH, LeafFunction.CONTAINS, LeafFunction.ENDS_WITH))
_LIST_FUNCTIONS = frozenset((LeafFunction.IN, LeafFunction.NOT_IN))
_NULL_FUNCTIONS = frozenset((LeafFunction.IS_NULL, LeafFunction.IS_NOT_NULL))

# Literal type on the wire -> the column types that it fits, and the field of the message that has the value.
_LITERALS: dict[int, tuple[tuple[str, ...], str]] = {
    0: (("BOOLEAN",), "boolean_value"),
    1: (("TINYINT",), "int_value"),
    2: (("SMALLINT",), "int_value"),
    3: (("INTEGER",), "int_value"),
    4: (("BIGINT",), "bigint_value"),
    5: (("FLOAT",), "float_value"),
    6: (("DOUBLE",), "double_value"),
    7: (("CHAR", "STRING"), "string_value"),
    8: (("CHAR", "STRING"), "string_value"),
    9: (("DECIMAL",), "decimal_value"),
    10: (("DATE",), "bigint_value"),
    11: (("TIME_WITHOUT_TIME_ZONE",), "int_value"),
    12: (("TIMESTAMP_WITHOUT_TIME_ZONE",), "timestamp_millis_value"),
    13: (("TIMESTAMP_WITH_LOCAL_TIME_ZONE",), "timestamp_millis_value"),
    14: (("BINARY", "BYTES"), "binary_value"),
    15: (("BINARY", "BYTES"), "binary_value"),
}


def read_predicate(message: Any, schema: Schema) -> Predicate:
    """The tree of a `PbPredicate`, with literals typed by the columns of `schema`; ValueError if it is invalid."""
    return _PredicateReader(schema).read(message, MAX_PREDICATE_DEPTH)


class _PredicateReader:
    """Reads the predicate of one message. Limits its nodes and literals: each costs time for every batch of a fetch."""

    def __init__(self, schema: Schema) -> None:
        self._columns = {column.column_id: column for column in schema.columns}
        self._nodes_left = MAX_PREDICATE_NODES
        self._literals_left = MAX_PREDICATE_LITERALS

    def read(self, message: Any, depth_left: int) -> Predicate:
        self._nodes_left -= 1
        if not depth_left or self._nodes_left < 0:
            raise ValueError(f"the predicate exceeds {MAX_PREDICATE_NODES} nodes or a depth of {MAX_PREDICATE_DEPTH}")
        if message.type == 0:
            return self._read_leaf(message.leaf)
        if message.type == 1:
            function = CompoundFunction(message.compound.function)
            children = tuple(self.read(child, depth_left - 1) for child in message.compound.children)
            if not children:
                raise ValueError(f"{function.name} must have children")
            return Compound(function, children)
        raise ValueError(f"unknown predicate type {message.type}")

    def _read_leaf(self, leaf: Any) -> Leaf:
        function = LeafFunction(leaf.function)
        column = self._columns.get(leaf.field_id)
        if column is None:
            known = ", ".join(map(str, self._columns))
            raise ValueError(f"the predicate names column id {leaf.field_id}, but the schema has {known}")
        self._literals_left -= len(leaf.literals)
        if self._literals_left < 0:
            raise ValueError(f"the predicate has more than {MAX_PREDICATE_LITERALS} literals")
        literals = tuple(_read_literal(literal, column) for literal in leaf.literals)
        _check_literals(function, literals, column)
        return Leaf(function, leaf.field_id, literals)


def _check_literals(function: LeafFunction, literals: tuple[Any, ...], column: Column) -> None:
    if function in _TEXT_FUNCTIONS and column.data_type.root not in _TEXT_ROOTS:
        raise ValueError(f"{function.name} needs a string column, but {column.name!r} is {column.data_type}")
    if function in _LIST_FUNCTIONS:
        if not literals and function is LeafFunction.NOT_IN:
            raise ValueError(f"NOT_IN of column {column.name!r} must have literals, got none")  # IN may have none
    elif len(literals) != (0 if function in _NULL_FUNCTIONS else 1):
        raise ValueError(f"{function.name} of column {column.name!r} cannot have {len(literals)} literals")


def _read_literal(literal: Any, column: Column) -> object:
    roots, field_name = _LITERALS.get(literal.literal_type, ((), ""))
    data_type = column.data_type
    if data_type.root not in roots:
        raise ValueError(f"literal type {literal.literal_type} does not fit column {column.name!r} of type {data_type}")
    if literal.is_null:
        return None
    if isinstance(data_type, DecimalType) and not data_type.is_compact:
        field_name = "decimal_bytes"
    if not literal.HasField(field_name):
        raise ValueError(f"literal for column {column.name!r} has no {field_name}")
    value = getattr(literal, field_name)
    if field_name == "timestamp_millis_value":
        return value, literal.timestamp_nano_of_millis_value
    return int.from_bytes(value, "big", signed=True) if field_name == "decimal_bytes" else value


Comparable: TypeAlias = Any


def float_order(value: float) -> Comparable:
    """A key that sorts as Java does: -0.0 before 0.0, all NaNs equal and after everything."""
    if math.isnan(value):
        return (1, 0.0, 0.0)
    return (0, value, math.copysign(1.0, value) if value == 0.0 else 0.0)


def _natural_order(value: Any) -> Comparable:
    # Strings too: Python compares code points, which is the order of the UTF-8 bytes.
    return value


def order_of(data_type: DataType) -> Callable[[Any], Comparable]:
    """The sort key of values of a type: a function that orders them as the bounds of statistics are ordered."""
    return float_order if data_type.root in ("FLOAT", "DOUBLE") else _natural_order


@dataclass(frozen=True)
class BoundLeaf:
    """A leaf bound to the schema of a batch. `keys` are the sorted sort keys of the literals that are not null."""

    function: LeafFunction
    position: int
    order: Callable[[Any], Comparable]
    keys: tuple[Comparable, ...]
    has_null_literal: bool


@dataclass(frozen=True)
class BoundCompound:
    """A conjunction or disjunction whose children are bound to the schema of a batch."""

    function: CompoundFunction
    children: tuple[BoundLeaf | BoundCompound, ...]


BoundPredicate: TypeAlias = BoundLeaf | BoundCompound


def bind(predicate: Predicate, filter_schema: Schema, batch_schema: Schema) -> BoundPredicate | None:
    """Resolve column ids for batches of `batch_schema`.

    Returns None if a column is missing there or has another type: then nothing can be decided for such batches.
    """
    positions = {column.column_id: position for position, column in enumerate(batch_schema.columns)}
    filter_types = {column.column_id: column.data_type for column in filter_schema.columns}

    def bind_node(node: Predicate) -> BoundPredicate:
        if isinstance(node, Compound):
            return BoundCompound(node.function, tuple(map(bind_node, node.children)))
        position = positions[node.column_id]
        data_type = batch_schema.columns[position].data_type
        if data_type.copy(True) != filter_types[node.column_id].copy(True):
            raise KeyError(node.column_id)
        order = order_of(data_type)
        keys = sorted(order(literal) for literal in node.literals if literal is not None)
        return BoundLeaf(node.function, position, order, tuple(keys), None in node.literals)

    try:
        return bind_node(predicate)
    except KeyError:
        return None
