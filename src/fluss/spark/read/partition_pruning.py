"""Choosing the partitions that can have rows which satisfy a condition on partition columns.

The values of a partition are known from its name, as strings. Only types whose strings can be parsed unambiguously take
part; a condition on another type leaves out no partition, and is applied to every row instead.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from fluss.client.engine.rows import RowFilter
from fluss.codec.arrow.types import to_arrow_type
from fluss.model.schema import Schema
from fluss.values.predicates import Predicate

_READ_BACK: dict[str, Callable[[str], object]] = {
    "CHAR": str,
    "STRING": str,
    "BOOLEAN": lambda text: {"true": True, "false": False}[text],
    "TINYINT": int,
    "SMALLINT": int,
    "INTEGER": int,
    "BIGINT": int,
    "DATE": datetime.date.fromisoformat,
}


class Partition(Protocol):
    """The parts of a partition that this module needs."""

    @property
    def partition_spec(self) -> Mapping[str, str]: ...


P = TypeVar("P", bound=Partition)


def readable_columns(schema: Schema, partition_keys: Sequence[str]) -> list[str]:
    """The partition columns whose values can be parsed from the name of a partition."""
    types = {column.name: column.data_type.root for column in schema.columns}
    return [name for name in partition_keys if types[name] in _READ_BACK]


def matching(partitions: Iterable[P], condition: Predicate | None, schema: Schema) -> list[P]:
    """The partitions that satisfy a condition on readable columns, and those with unreadable names."""
    candidates = list(partitions)
    if condition is None or not candidates:
        return candidates
    row_filter = RowFilter(condition, schema)
    by_id = {column.column_id: column for column in schema.columns}
    chosen = []
    for partition in candidates:
        try:
            texts = {
                column_id: _READ_BACK[by_id[column_id].data_type.root](partition.partition_spec[by_id[column_id].name])
                for column_id in row_filter.column_ids
            }
        except (KeyError, ValueError):
            chosen.append(partition)  # the name cannot be parsed, so it excludes nothing
            continue
        arrays = {
            column_id: pa.array([value], to_arrow_type(by_id[column_id].data_type))
            for column_id, value in texts.items()
        }
        if row_filter.mask(arrays.__getitem__)[0].as_py():
            chosen.append(partition)
    return chosen
