"""Old and new rows of updates are paired, however the rows of a bucket are cut."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from fluss.client.decode.log_rows import LogRows
from fluss.errors import FlussError
from fluss.spark.read.binlog import BinlogColumns, Pairing, binlog_columns, state_images
from fluss.values.basic import TableBucket

BUCKET = TableBucket.with_partition(1, None, 0)
ROW = StructType([StructField("id", LongType(), False), StructField("text", StringType())])
ALL = BinlogColumns(("_change_type", "_log_offset", "before", "after"), ("id", "text"))
INSERT, OLD, NEW, DELETE = 1, 2, 3, 4
BASE_OFFSET = 100

Log = list[tuple[int, int, str]]
"""Kind, key and text; an offset each."""


def random_log(seed: int, steps: int = 40) -> Log:
    """The changelog of a bucket with few keys."""
    rng = random.Random(seed)
    state: dict[int, str] = {}
    log: Log = []
    for step in range(steps):
        key, text = rng.randrange(4), f"text {step}"
        if key in state and rng.random() < 0.3:
            log.append((DELETE, key, state.pop(key)))
            continue
        log += [(OLD, key, state[key]), (NEW, key, text)] if key in state else [(INSERT, key, text)]
        state[key] = text
    return log


def expected(log: Log) -> list[dict[str, Any]]:
    """The expected rows, change by change."""
    found = []
    for index, (kind, key, text) in enumerate(log):
        row, offset = {"id": key, "text": text}, BASE_OFFSET + index
        if kind == INSERT:
            found.append({"_change_type": "insert", "_log_offset": offset, "before": None, "after": row})
        elif kind == DELETE:
            found.append({"_change_type": "delete", "_log_offset": offset, "before": row, "after": None})
        elif kind == NEW:
            old = {"id": log[index - 1][1], "text": log[index - 1][2]}
            found.append({"_change_type": "update", "_log_offset": offset, "before": old, "after": row})
    return found


def rows_of(log: Log, start: int, stop: int) -> LogRows:
    part = log[start:stop]
    batch = pa.RecordBatch.from_arrays(
        [pa.array([key for _, key, _ in part], pa.int64()), pa.array([text for _, _, text in part], pa.string())],
        schema=pa.schema([pa.field("id", pa.int64(), False), pa.field("text", pa.string())]),
    )
    return LogRows(BUCKET, batch, BASE_OFFSET + start, 5, bytes(kind for kind, _, _ in part))


class Reader:
    """A log that allows looking back, and remembers at which offsets that was done."""

    def __init__(self, log: Log, columns: BinlogColumns = ALL) -> None:
        self.log = log
        self.asked: list[int] = []
        self.columns = columns

    def look_back(self, offset: int) -> Any:
        self.asked.append(offset)
        index = offset - BASE_OFFSET
        is_old = 0 <= index < len(self.log) and self.log[index][0] == OLD
        return rows_of(self.log, index, index + 1).rows if is_old else None

    def pairing(self) -> Pairing:
        return Pairing(self.columns, self.look_back, "db.t")

    def read(self, start: int, stop: int, cuts: tuple[int, ...] = ()) -> list[dict[str, Any]]:
        """Read a range with a new pairing, in batches that end at `cuts`."""
        pairing = self.pairing()
        bounds = [start, *(cut for cut in cuts if start < cut < stop), stop]
        batches = [rows_of(self.log, low, high) for low, high in pairwise(bounds)]
        return [row for batch in batches for row in pairing.changes(batch).to_pylist()]


@pytest.mark.parametrize("seed", range(5))
def test_batches_and_ranges_may_be_cut_anywhere(seed: int) -> None:
    log = random_log(seed)
    whole = Reader(log)
    assert whole.read(0, len(log)) == expected(log)
    assert whole.read(0, len(log), tuple(range(1, len(log)))) == expected(log)
    assert whole.asked == [], "the old row was in the same range"
    for cut in range(1, len(log)):
        parts = Reader(log)
        first, second = parts.read(0, cut), parts.read(cut, len(log))
        assert first + second == expected(log)
        assert parts.asked == ([BASE_OFFSET + cut - 1] if log[cut][0] == NEW else [])


def test_single_offsets() -> None:
    log = random_log(9)
    found = [row for index in range(len(log)) for row in Reader(log).read(index, index + 1)]
    assert found == expected(log)


def test_repeated_and_missing_rows_are_handled() -> None:
    log: Log = [(INSERT, 1, "a"), (OLD, 1, "a"), (NEW, 1, "b"), (OLD, 1, "b"), (NEW, 1, "c")]
    reader = Reader(log)
    pairing = reader.pairing()
    pairing.changes(rows_of(log, 0, 2))
    after_a_gap = pairing.changes(rows_of(log, 4, 5)).to_pylist()
    assert after_a_gap == expected(log)[2:]
    assert reader.asked == [BASE_OFFSET + 3]
    assert pairing.changes(rows_of(log, 1, 4)).to_pylist() == expected(log)[1:2]


def test_updates_without_old_rows_are_an_error() -> None:
    log: Log = [(INSERT, 1, "a"), (NEW, 1, "b"), (NEW, 1, "c")]
    with pytest.raises(
        FlussError, match=r"db\.t: the update at offset 101 is not preceded by its old row.*mode=changelog"
    ):
        Reader(log).read(0, 3)
    with pytest.raises(FlussError, match="the update at offset 102 is not preceded by its old row"):
        Reader(log).read(2, 3)


@pytest.mark.parametrize("wanted", [("after",), ("_log_offset", "after"), ("_change_type",)])
def test_columns_without_old_rows_need_no_look_back(wanted: tuple[str, ...]) -> None:
    log = random_log(3)
    cut = next(index for index, change in enumerate(log) if change[0] == NEW)
    reader = Reader(log, BinlogColumns(wanted, ("id", "text") if "after" in wanted else ()))
    assert reader.read(cut, len(log)) == [
        {name: row[name] for name in wanted} for row in expected(log) if row["_log_offset"] >= BASE_OFFSET + cut
    ]
    assert reader.asked == []


def test_the_columns_of_a_schema() -> None:
    before, after = StructField("before", ROW), StructField("after", ROW)
    offset = StructField("_log_offset", LongType(), False)
    assert binlog_columns(StructType([after, offset])) == BinlogColumns(("after", "_log_offset"), ("id", "text"))
    assert binlog_columns(StructType([before])).images == ("before",)
    assert binlog_columns(StructType([offset])) == BinlogColumns(("_log_offset",), ())
    assert binlog_columns(StructType([])).wanted == ("_log_offset",), "rows without columns cannot be counted"


def test_a_state_consists_of_inserts() -> None:
    log = random_log(1)[:3]
    batch = rows_of(log, 0, 3).rows
    found = state_images(batch, ALL).to_pylist()
    assert found == [{"before": None, "after": row} for row in batch.to_pylist()]
    assert state_images(batch, BinlogColumns(("_change_type",), ())) is batch
