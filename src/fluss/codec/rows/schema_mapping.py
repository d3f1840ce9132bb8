"""Converts rows of an older schema to rows of a newer one.

Columns are matched by id, never by name or position. A column that the older schema lacks is null. The type of a column
must not have changed, except that it may have become nullable.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from fluss.codec.arrow.types import to_arrow_type
from fluss.codec.rows.values import CorruptRowError
from fluss.model.schema import Schema

MISSING = -1


def column_mapping(source: Schema, target: Schema) -> tuple[int, ...] | None:
    """The position in `source` of each column of `target`, or MISSING; None if the columns are the same."""
    if source is target:
        return None
    positions = {column.column_id: position for position, column in enumerate(source.columns)}
    mapping = tuple(positions.get(column.column_id, MISSING) for column in target.columns)
    for column, position in zip(target.columns, mapping, strict=True):
        if position == MISSING:
            if not column.data_type.nullable:
                raise CorruptRowError(f"column {column.name!r} is NOT NULL, but older rows do not have it")
        elif source.columns[position].data_type.copy(True) != column.data_type.copy(True):
            changed = f"{source.columns[position].data_type} to {column.data_type}"
            raise CorruptRowError(f"the type of column {column.name!r} must not change, but has changed from {changed}")
    if mapping == tuple(range(len(source.columns))):
        return None
    return mapping


def map_values(row: Sequence[object], mapping: Sequence[int] | None) -> list[object]:
    """Reorder one row of logical values to the columns of the newer schema.

    >>> map_values(["a", "b"], (1, MISSING, 0))
    ['b', None, 'a']
    """
    if mapping is None:
        return list(row)
    return [None if position == MISSING else row[position] for position in mapping]


def map_columns(
    columns: Sequence[pa.Array], mapping: Sequence[int] | None, target: Schema, count: int
) -> list[pa.Array]:
    """Reorder Arrow columns to those of the newer schema, with nulls for missing ones."""
    if mapping is None:
        return list(columns)
    return [
        pa.nulls(count, to_arrow_type(data_type)) if position == MISSING else columns[position]
        for position, data_type in zip(mapping, target.data_types, strict=True)
    ]
