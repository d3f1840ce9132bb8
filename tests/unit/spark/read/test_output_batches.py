"""Sizes of batches on their way to Spark, limits, and the columns about changes."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from fluss.client.decode.log_rows import LogRows
from fluss.model.paths import ChangeType
from fluss.spark.read.output_batches import (
    MAX_BATCH_BYTES,
    MAX_BATCH_ROWS,
    MIN_BATCH_ROWS,
    limited,
    sized,
    with_change_columns,
)
from fluss.values.basic import TableBucket


def numbers(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(start, start + count))], names=["id"])


def test_small_batches_are_combined_and_large_ones_cut() -> None:
    sizes = [1, 0, 10, MIN_BATCH_ROWS, 5, 3 * MAX_BATCH_ROWS + 7, 2]
    starts = np.cumsum([0, *sizes]).tolist()
    given = [numbers(start, size) for start, size in zip(starts, sizes, strict=False)]
    found = list(sized(given))
    assert found[0].num_rows == MIN_BATCH_ROWS + 11
    assert all(0 < batch.num_rows <= MAX_BATCH_ROWS for batch in found)
    assert pa.Table.from_batches(found).column("id").to_pylist() == list(range(sum(sizes)))


def test_wide_rows_are_cut_by_bytes() -> None:
    wide = pa.record_batch([pa.array(["x" * 10_000] * 5_000)], names=["text"])
    found = list(sized([wide]))
    assert len(found) >= 3
    assert all(batch.nbytes <= MAX_BATCH_BYTES for batch in found)
    assert sum(batch.num_rows for batch in found) == 5_000
    huge = pa.record_batch([pa.array(["x" * (MAX_BATCH_BYTES + 1)] * 2)], names=["text"])
    assert [batch.num_rows for batch in sized([huge])] == [1, 1]


@pytest.mark.parametrize(("limit", "expected"), [(1, 1), (10, 10), (15, 15), (1000, 30)])
def test_a_limit_cuts_and_stops(limit: int, expected: int) -> None:
    asked = []

    def batches() -> object:
        for start in (0, 10, 20):
            asked.append(start)
            yield numbers(start, 10)

    rows = [value for batch in limited(batches(), limit) for value in batch.column("id").to_pylist()]  # type: ignore[arg-type]
    assert rows == list(range(expected))
    assert len(asked) == min(3, -(-limit // 10))


def test_columns_about_changes() -> None:
    kinds = bytes([ChangeType.INSERT, ChangeType.UPDATE_BEFORE, ChangeType.UPDATE_AFTER, ChangeType.DELETE])
    rows = LogRows(TableBucket(1, 0), numbers(0, 4), 100, 1_500, kinds)
    found = with_change_columns(rows, ["_log_offset", "_change_type", "_commit_timestamp"])
    assert found.schema.names == ["id", "_log_offset", "_change_type", "_commit_timestamp"]
    assert found.column("_change_type").to_pylist() == ["insert", "update_before", "update_after", "delete"]
    assert found.column("_log_offset").to_pylist() == [100, 101, 102, 103]
    moment = datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, datetime.UTC)
    assert found.column("_commit_timestamp").to_pylist() == [moment] * 4
    filtered = LogRows(TableBucket(1, 0), numbers(0, 2), 100, 0, None, np.array([103, 107]))
    found = with_change_columns(filtered, ["_log_offset", "_change_type"])
    assert found.column("_log_offset").to_pylist() == [103, 107]
    assert found.column("_change_type").to_pylist() == ["insert", "insert"]
