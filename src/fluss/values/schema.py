"""The public `Schema`: made from an Arrow schema or with a builder, and wrapped around `model.schema.Schema`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from fluss.codec.arrow.types import from_arrow_schema, to_arrow_schema
from fluss.errors import FlussError
from fluss.model import schema as wire
from fluss.model.aggregation import AGGREGATION_FUNCTIONS, broken_function_rule, normalized_function
from fluss.model.types import DataType
from fluss.values.data_types import as_data_type, type_text


class Schema:
    """The columns and the primary key of a table.

    >>> Schema(pa.schema([("id", pa.int32()), ("name", pa.string())]), primary_keys=["id"]).get_columns()
    [('id', 'int NOT NULL'), ('name', 'string')]
    """

    def __init__(
        self,
        schema: pa.Schema,
        primary_keys: Sequence[str] | None = None,
        auto_increment_column: str | None = None,
    ) -> None:
        if not isinstance(schema, pa.Schema):
            raise FlussError(f"schema must be a pyarrow.Schema, got {type(schema).__name__}; or use Schema.builder()")
        try:
            columns = from_arrow_schema(schema).columns
        except ValueError as error:
            raise FlussError(f"invalid Arrow schema for a table: {error}") from None
        self._inner = _checked_schema(columns, primary_keys or (), auto_increment_column)

    @staticmethod
    def builder() -> SchemaBuilder:
        """A builder without columns."""
        return SchemaBuilder()

    def get_column_names(self) -> list[str]:
        """Names of all columns, in order."""
        return list(self._inner.column_names)

    def get_column_types(self) -> list[str]:
        """Types of all columns as strings, in order."""
        return [type_text(data_type) for data_type in self._inner.data_types]

    def get_columns(self) -> list[tuple[str, str]]:
        """The name and the type of each column, in order."""
        return list(zip(self.get_column_names(), self.get_column_types(), strict=True))

    def get_primary_keys(self) -> list[str]:
        """Names of the primary-key columns; empty for a log table."""
        return list(self._inner.primary_key)

    def get_auto_increment_columns(self) -> list[str]:
        """Names of the columns whose numbers the server assigns."""
        column = self._inner.auto_increment_column
        return [] if column is None else [column]

    @property
    def columns(self) -> tuple[wire.Column, ...]:
        """The columns, each with its name, data type, comment and id."""
        return self._inner.columns

    @property
    def column_names(self) -> list[str]:
        """Alias of `get_column_names()`."""
        return self.get_column_names()

    @property
    def primary_key(self) -> list[str] | None:
        """The primary-key columns, None for a log table."""
        return self.get_primary_keys() or None

    @property
    def primary_key_indexes(self) -> list[int]:
        """Positions of the primary-key columns."""
        return [self._inner.position(name) for name in self._inner.primary_key]

    def to_arrow(self) -> pa.Schema:
        """The Arrow schema of the rows that scans of a table with this schema return."""
        return to_arrow_schema(self._inner)

    def __eq__(self, other: object) -> bool:
        return self._inner == other._inner if isinstance(other, Schema) else NotImplemented

    def __hash__(self) -> int:
        return hash((self._inner.column_names, self._inner.primary_key))

    def __reduce__(self) -> tuple[object, ...]:
        return public_schema, (self._inner,)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {kind}" for name, kind in self.get_columns())
        keys = self.get_primary_keys()
        return f"Schema({columns}" + (f", PRIMARY KEY ({', '.join(keys)})" if keys else "") + ")"


@dataclass(frozen=True)
class SchemaInfo:
    """A schema of a table and its id; a table gets a new schema when its columns change."""

    schema: Schema
    schema_id: int


class SchemaBuilder:
    """Builds a schema: `Schema.builder().column("id", DataTypes.int()).primary_key(["id"]).build()`."""

    def __init__(self) -> None:
        self._columns: list[wire.Column] = []
        self._primary_key: tuple[str, ...] = ()
        self._auto_increment: str | None = None

    def column(self, name: str, data_type: DataType | pa.DataType, comment: str | None = None) -> SchemaBuilder:
        """Add a column; the type is one of `DataTypes` or a pyarrow type."""
        self._columns.append(wire.Column(name, as_data_type(data_type), comment))
        return self

    def with_comment(self, comment: str) -> SchemaBuilder:
        """Set the comment of the column added last."""
        if not self._columns:
            raise FlussError(f"with_comment({comment!r}) applies to the column added last; add a column first")
        self._columns[-1] = replace(self._columns[-1], comment=comment)
        return self

    def with_aggregation(self, function: str, **parameters: str) -> SchemaBuilder:
        """Set how the column added last combines old and new values in a table with the merge engine `aggregation`.

        >>> builder = Schema.builder().column("shop", DataTypes.string())
        >>> builder = builder.column("total", DataTypes.bigint()).with_aggregation("sum")
        >>> builder = builder.column("buyers", DataTypes.string()).with_aggregation("listagg", delimiter=";")
        >>> descriptor = TableDescriptor(
        ...     builder.primary_key("shop").build(), properties={"table.merge-engine": "aggregation"}
        ... )
        """
        if not self._columns:
            raise FlussError(f"with_aggregation({function!r}) applies to the column added last; add a column first")
        column = self._columns[-1]
        normalized = normalized_function({"type": function, "parameters": parameters})
        if normalized is None:
            known = ", ".join(AGGREGATION_FUNCTIONS)
            raise FlussError(f"unknown aggregation function {function!r}; known are {known}")
        broken = broken_function_rule(normalized, column.data_type)
        if broken is not None:
            raise FlussError(f"column {column.name!r}: {broken}")
        self._columns[-1] = replace(column, agg_function=normalized)
        return self

    def primary_key(self, keys: Sequence[str] | str, *more: str) -> SchemaBuilder:
        """Set the columns that identify a row."""
        self._primary_key = (keys, *more) if isinstance(keys, str) else (*keys, *more)
        return self

    def enable_auto_increment(self, column: str) -> SchemaBuilder:
        """Let the server fill a column of a primary-key table with increasing numbers."""
        self._auto_increment = column
        return self

    def build(self) -> Schema:
        """Return the schema. `FlussError` if it has no columns or its keys contradict them."""
        return public_schema(_checked_schema(tuple(self._columns), self._primary_key, self._auto_increment))

    def __repr__(self) -> str:
        return f"SchemaBuilder(columns={[column.name for column in self._columns]})"


def public_schema(inner: wire.Schema) -> Schema:
    """Wrap a `model.schema.Schema` in the public class."""
    schema = Schema.__new__(Schema)
    schema._inner = inner
    return schema


def model_schema(schema: Schema) -> wire.Schema:
    """Unwrap a public schema: the `model.schema.Schema` inside it."""
    return schema._inner


def _checked_schema(
    columns: tuple[wire.Column, ...], primary_keys: Sequence[str], auto_increment: str | None
) -> wire.Schema:
    """The schema with ids and NOT NULL key columns, checked by the reader of the wire format."""
    if not columns:
        raise FlussError("a table must have at least one column, got none")
    if isinstance(primary_keys, str):
        raise FlussError(
            f"primary_keys must be a list of column names, got the string {primary_keys!r}; write [{primary_keys!r}]"
        )
    schema = wire.Schema(columns, tuple(primary_keys), auto_increment).numbered()
    try:
        return wire.schema_from_json(wire.schema_to_json(schema))
    except ValueError as error:
        raise FlussError(f"invalid schema for a table: {error}") from None
