"""Whole rows merged by columns against whole rows merged one by one, with repeated keys, deletes and old schemas."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss.codec.arrow.compression import Compression
from fluss.codec.batches.kv_batch import KvHeader, KvRecords
from fluss.codec.batches.kv_values import encode_value
from fluss.codec.keys.encoding import KeyEncoding
from fluss.codec.rows.arrow_values import column_to_values
from fluss.codec.rows.columns import RowFormat
from fluss.errors import ErrorCode, FlussError
from fluss.model.schema import Column, Schema
from fluss.model.types import IntType, StringType
from fluss.server.storage.kv.table_format import KvTableFormat
from fluss.server.tablet.kv.merge.engines import FirstRowMerger, VersionedMerger
from fluss.server.tablet.kv.merge.put_batch import DeletePolicy, MergeResult, merge_rows, merge_values
from fluss.server.tablet.kv.merge.whole_rows import merge_chosen_rows, merge_whole_rows
from tests.support.runner.lanes import examples

OLD_SCHEMA = Schema((Column("id", IntType(nullable=False)), Column("name", StringType())), ("id",)).numbered()
SCHEMA = Schema((*OLD_SCHEMA.columns, Column("more", IntType())), ("id",)).numbered()
FORMAT = KvTableFormat(
    {1: OLD_SCHEMA, 2: SCHEMA}, 2, RowFormat.COMPACTED, "ARROW", Compression(), ("id",), KeyEncoding.COMPACTED, True
)
KEYS = [bytes((number,)) for number in range(6)]


def _value(key: bytes, text: str, schema_id: int) -> bytes:
    row = [key[0], text] if schema_id == 1 else [key[0], text, len(text)]
    return encode_value(row, schema_id, FORMAT.schemas[schema_id], RowFormat.COMPACTED)


_stored = st.dictionaries(st.sampled_from(KEYS), st.tuples(st.text(max_size=3), st.sampled_from([1, 2])))
_changes = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.text(max_size=3)), max_size=12)
_different_puts = st.dictionaries(st.sampled_from(KEYS), st.text(max_size=3)).map(lambda rows: list(rows.items()))


def _records(changes: list[tuple[bytes, str | None]]) -> KvRecords:
    values = [None if text is None else _value(key, text, 2) for key, text in changes]
    return KvRecords(KvHeader(0, 0, 0, 2, 0, -1, -1, len(changes)), [key for key, _ in changes], values)


def _comparable(outcome: MergeResult) -> Any:
    columns = [column_to_values(a, b) for a, b in zip(outcome.columns, SCHEMA.data_types, strict=True)]
    return columns, outcome.change_types, outcome.entries


@pytest.mark.parametrize("full_image", [True, False])
@pytest.mark.parametrize("behavior", ["ALLOW", "IGNORE"])
@given(stored=_stored, changes=_changes | _different_puts)
@settings(max_examples=examples(120), deadline=None)
def test_columns_give_the_same_result_as_records(stored: Any, changes: Any, behavior: str, full_image: bool) -> None:
    old = {key: _value(key, text, schema_id) for key, (text, schema_id) in stored.items()}
    asked: list[bytes] = []

    def old_values(keys: list[bytes], array: Any) -> list[bytes | None]:
        assert array.to_pylist() == keys
        asked.extend(keys)
        return [old.get(key) for key in keys]

    records, deletes = _records(changes), DeletePolicy(behavior)
    by_columns = merge_whole_rows(FORMAT, records, old_values, deletes, full_image=full_image)
    by_records = merge_values(
        FORMAT, records.key_list, records.value_list, dict(old), deletes, with_old=full_image, knows_old=full_image
    )
    assert _comparable(by_columns) == _comparable(by_records)
    assert len(asked) == len(set(asked)), "a key is looked up once"
    if full_image:
        assert by_columns.row_delta == by_records.row_delta


def test_forbidden_deletes_are_refused() -> None:
    with pytest.raises(FlussError) as caught:
        merge_whole_rows(
            FORMAT,
            _records([(b"a", None)]),
            lambda keys, _: [None] * len(keys),
            DeletePolicy("DISABLE"),
            full_image=True,
        )
    assert caught.value.error_code == ErrorCode.DELETION_DISABLED_EXCEPTION


VERSION_POSITION = 2


@pytest.mark.parametrize(
    "merger", [FirstRowMerger(), VersionedMerger(VERSION_POSITION)], ids=["first_row", "versioned"]
)
@given(stored=_stored, changes=_different_puts)
@settings(max_examples=examples(120), deadline=None)
def test_engines_choose_the_same_rows_by_columns_and_by_rows(stored: Any, changes: Any, merger: Any) -> None:
    """The version is the length of the string; rows of the old schema have none."""
    old = {key: _value(key, text, schema_id) for key, (text, schema_id) in stored.items()}
    records = _records(changes)
    olds = [old.get(key) for key in records.key_list]
    chosen = merger.chosen(FORMAT, olds, records.values)
    by_columns = merge_chosen_rows(FORMAT, records, olds, chosen)
    by_rows = merge_rows(
        FORMAT, records.key_list, records.value_list, dict(old), DeletePolicy("ALLOW"), merger, with_old=True
    )
    assert _comparable(by_columns) == _comparable(by_rows)
    assert by_columns.row_delta == by_rows.row_delta
