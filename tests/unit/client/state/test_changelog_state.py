"""Merging a changelog gives what a dict gives."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss.client.decode.log_rows import LogRows
from fluss.client.net.metadata import ClientTable
from fluss.client.state import changelog_state
from fluss.client.state.changelog_state import BucketMerge
from fluss.codec.arrow.types import to_arrow_schema
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import ChangeType, TablePath
from fluss.model.schema import Column, Schema
from fluss.model.types import IntType, StringType
from fluss.values.basic import TableBucket
from tests.support.runner.lanes import examples

SCHEMA = Schema((Column("id", IntType(nullable=False)), Column("name", StringType())), ("id",)).numbered()
TABLE = ClientTable(TablePath("db", "t"), 1, 1, TableDescriptor(SCHEMA, bucket_count=1), 0, 0)
ARROW = to_arrow_schema(SCHEMA)
Change = tuple[int, str | None]


def log_rows(rows: list[tuple[ChangeType, Change]]) -> LogRows:
    batch = pa.RecordBatch.from_pylist([{"id": number, "name": name} for _, (number, name) in rows], ARROW)
    return LogRows(TableBucket(1, 0), batch, 0, 0, bytes(kind for kind, _ in rows))


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 8), st.none() | st.text(max_size=2)), max_size=12), max_size=8),
    st.sampled_from([1, 7, 1000]),
)
def test_merging_equals_a_dict(batches: list[list[Change]], merge_from: int) -> None:
    model: dict[int, str | None] = {}
    merge = BucketMerge(TABLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changelog_state, "MAX_UNMERGED_ROWS", merge_from)
        for batch in batches:
            rows: list[tuple[ChangeType, Change]] = []
            for number, name in batch:
                if name is None and number in model:
                    rows.append((ChangeType.DELETE, (number, model.pop(number))))
                elif number in model:
                    rows += [
                        (ChangeType.UPDATE_BEFORE, (number, model[number])),
                        (ChangeType.UPDATE_AFTER, (number, name)),
                    ]
                    model[number] = name
                elif name is not None:
                    rows.append((ChangeType.INSERT, (number, name)))
                    model[number] = name
            if rows:
                merge.add(log_rows(rows))
        merged = merge.merge()
    found = [] if merged is None else merged.to_pylist()
    assert {row["id"]: row["name"] for row in found} == model
    assert len(found) == len(model)
