"""Partial updates by columns against partial updates row by row, on random rows of every type."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluss.codec.arrow.compression import Compression
from fluss.codec.batches.kv_values import encode_value
from fluss.codec.keys.encoding import KeyEncoding
from fluss.codec.rows.arrow_values import column_to_values
from fluss.codec.rows.columns import RowFormat
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import TablePath
from fluss.model.schema import Column, Schema
from fluss.model.types import IntType
from fluss.server.catalog import TableEntry
from fluss.server.storage.kv.table_format import KvTableFormat
from fluss.server.tablet.buckets.kv_rules import KvRules
from fluss.server.tablet.kv.merge.columns import merge_partial_columns
from fluss.server.tablet.kv.merge.partial_update import PartialUpdateMerger
from fluss.server.tablet.kv.merge.put_batch import DeletePolicy, MergeResult, merge_rows
from tests.support.runner.lanes import examples
from tests.support.values.row_strategies import column_types, values_of


def _table(types: list[Any]) -> TableEntry:
    columns = [Column("id", IntType(nullable=False)), *[Column(f"c{i}", kind) for i, kind in enumerate(types)]]
    schema = Schema(tuple(columns), ("id",)).numbered()
    return TableEntry(TablePath("d", "t"), 1, 1, {1: schema}, TableDescriptor(schema, bucket_count=1), 0, 0)


@st.composite
def _cases(draw: st.DrawFn) -> tuple[TableEntry, list[Any], list[Any], frozenset[int]]:
    types = [kind.copy(True) for kind in draw(column_types())[:4]] or [IntType()]
    entry = _table(types)
    rows = st.tuples(*[st.none() | values_of(kind) for kind in types])
    count = draw(st.integers(1, 6))
    new = [[number, *draw(rows)] for number in range(count)]
    known = [draw(st.booleans()) for _ in range(count)]
    old = [[number, *draw(rows)] if known[number] else None for number in range(count)]
    targets = draw(st.sets(st.integers(1, len(types)), min_size=1))
    return entry, new, old, frozenset({0, *targets})


def _comparable(outcome: MergeResult, schema: Schema) -> str:
    """The values as strings, in which NaNs are equal to each other."""
    types = schema.data_types
    return repr(([column_to_values(a, b) for a, b in zip(outcome.columns, types, strict=True)], *outcome[1:]))


@pytest.mark.parametrize("with_old", [True, False])
@given(case=_cases())
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
def test_columns_give_the_same_result_as_rows(case: Any, with_old: bool) -> None:
    entry, new, old, targets = case
    table_format = KvTableFormat(
        entry.schemas, 1, RowFormat.COMPACTED, "ARROW", Compression(), ("id",), KeyEncoding.COMPACTED, True
    )
    keys = [bytes((number,)) for number in range(len(new))]
    values: list[bytes | None] = [encode_value(row, 1, entry.schema, RowFormat.COMPACTED) for row in new]
    olds = [None if row is None else encode_value(row, 1, entry.schema, RowFormat.COMPACTED) for row in old]
    merger = PartialUpdateMerger(KvRules(entry), targets)
    by_rows = merge_rows(
        table_format, keys, values, dict(zip(keys, olds, strict=True)), DeletePolicy("ALLOW"), merger, with_old=with_old
    )
    by_columns = merge_partial_columns(table_format, keys, values, olds, merger.written, with_old=with_old)
    assert _comparable(by_columns, entry.schema) == _comparable(by_rows, entry.schema)
