"""The parts of a round that need no server: joining results, choosing the way of a bucket, folding changes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from fluss.client.decode.log_rows import LogRows
from fluss.client.net.metadata import ClientTable
from fluss.errors import FlussError
from fluss.lake.reading.merge import MergeKeys
from fluss.lake.tables.interface.format import CommitMessage, LakeFile, LakeSplit
from fluss.lake.tiering import changes
from fluss.lake.tiering.changes import ChangeFold
from fluss.lake.tiering.key_files import uses_position_deletes
from fluss.lake.tiering.options import MIB, TieringOptions
from fluss.lake.tiering.task_values import SplitResult, join_messages
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import ChangeType, TablePath
from fluss.model.schema import Column, Schema
from fluss.model.types import BigIntType, StringType
from fluss.values.basic import TableBucket

BUCKET, OTHER = TableBucket(1, 0), TableBucket(1, 1)


def result(start: int, end: int, reached: int | None = None, bucket: TableBucket = BUCKET) -> SplitResult:
    planned = LakeSplit(bucket, None, start, end)
    ended = LakeSplit(bucket, None, start, end if reached is None else reached)
    return SplitResult(planned, CommitMessage(ended, ended.end_offset - start, (f"file {start}",)))


def test_pieces_of_a_bucket_become_one_message_in_any_order() -> None:
    joined = join_messages([result(20, 30), result(0, 10), result(5, 9, bucket=OTHER), result(10, 20)])
    assert joined.unusable == []
    whole, other = joined.messages
    assert (whole.split.start_offset, whole.split.end_offset, whole.row_count) == (0, 30, 30)
    assert whole.added == ("file 0", "file 10", "file 20")
    assert (other.split.bucket, other.split.end_offset) == (OTHER, 9)


@pytest.mark.parametrize(
    "second",
    [
        SplitResult(LakeSplit(BUCKET, None, 10, 20), error=FlussError("no")),
        SplitResult(LakeSplit(BUCKET, None, 10, 20), gone="dropped"),
        result(10, 20, reached=10),
    ],
    ids=["failed", "gone", "not begun"],
)
def test_pieces_after_a_gap_cannot_be_committed(second: SplitResult) -> None:
    joined = join_messages([result(0, 10), second, result(20, 30)])
    (message,) = joined.messages
    assert (message.split.end_offset, message.added[0]) == (10, "file 0")
    assert [each.split.start_offset for each in joined.unusable] == [20]
    assert second.is_whole is False


def test_a_bucket_without_its_first_piece_has_no_message() -> None:
    failed = SplitResult(LakeSplit(BUCKET, None, 0, 10), error=FlussError("no"))
    joined = join_messages([failed, result(10, 20)])
    assert joined.messages == []
    assert len(joined.unusable) == 1


def files(count: int, size_mib: int, rows: int, deleted: int = 0) -> list[LakeFile]:
    return [LakeFile(f"f{n}", 0, None, rows, size_mib * MIB, deleted, None) for n in range(count)]


@pytest.mark.parametrize(
    ("bucket", "changed", "expected"),
    [
        (files(1, 31, 1000), 1, False),  # small
        (files(1, 32, 1000), 100, True),
        (files(1, 32, 1000), 101, False),  # much changed
        (files(32, 32, 1000), 1, False),  # many files
        (files(1, 32, 1000, 240), 10, True),
        (files(1, 32, 1000, 240), 11, False),  # much hidden
    ],
)
def test_when_rows_are_hidden_rather_than_rewritten(bucket: list[LakeFile], changed: int, expected: bool) -> None:
    assert uses_position_deletes(bucket, changed, TieringOptions()) is expected


def changelog(base: int, *entries: tuple[ChangeType, int, str]) -> LogRows:
    rows = pa.RecordBatch.from_pydict(
        {"id": pa.array([number for _, number, _ in entries], pa.int64()), "text": [text for *_, text in entries]}
    )
    return LogRows(BUCKET, rows, base, 1_000 + base, bytes(kind for kind, *_ in entries))


@pytest.mark.parametrize("limit", [1, 1_000], ids=["merged all the time", "merged at the end"])
def test_the_last_image_of_every_key(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(changes, "MIN_UNMERGED_ROWS", limit)
    columns = (Column("id", BigIntType().not_null()), Column("text", StringType()))
    descriptor = TableDescriptor(Schema(columns, ("id",)).numbered(), bucket_keys=("id",), bucket_count=1)
    keys = MergeKeys(ClientTable(TablePath("db", "t"), 1, 1, descriptor, 0, 0))
    fold = ChangeFold(keys)
    insert, before, after, delete = (
        ChangeType.INSERT,
        ChangeType.UPDATE_BEFORE,
        ChangeType.UPDATE_AFTER,
        ChangeType.DELETE,
    )
    fold.add(changelog(0, (insert, 1, "a"), (insert, 2, "b"), (insert, 3, "c")))
    fold.add(changelog(3, (before, 1, "a"), (after, 1, "A"), (delete, 2, "b")))
    fold.add(changelog(6, (delete, 3, "c"), (insert, 3, "C"), (before, 1, "A")))
    found = fold.changes()
    assert found.keys is not None
    assert sorted(found.keys.to_pylist()) == [1, 2, 3]
    rows: Any = found.rows
    assert rows.select(["id", "text", "__offset"]).to_pylist() == [
        {"id": 1, "text": "A", "__offset": 4},
        {"id": 3, "text": "C", "__offset": 7},
    ]


def test_a_fold_is_full_when_merging_would_not_help() -> None:
    columns = (Column("id", BigIntType().not_null()), Column("text", StringType()))
    descriptor = TableDescriptor(Schema(columns, ("id",)).numbered(), bucket_keys=("id",), bucket_count=1)
    fold = ChangeFold(MergeKeys(ClientTable(TablePath("db", "t"), 1, 1, descriptor, 0, 0)))
    for number in range(100):
        fold.add(changelog(number, (ChangeType.INSERT, 1, "x" * 100)))
    assert not fold.is_full(2_000), "a hundred rows of one key are one row"
    for number in range(100):
        fold.add(changelog(number, (ChangeType.INSERT, number, "x" * 100)))
    assert fold.is_full(2_000)


def test_no_changes() -> None:
    columns = (Column("id", BigIntType().not_null()),)
    descriptor = TableDescriptor(Schema(columns, ("id",)).numbered(), bucket_keys=("id",), bucket_count=1)
    fold = ChangeFold(MergeKeys(ClientTable(TablePath("db", "t"), 1, 1, descriptor, 0, 0)))
    for number in range(2):  # the round ended before the new rows
        fold.add(changelog(number, (ChangeType.UPDATE_BEFORE, 1, "old")))
    assert fold.changes() == (None, None)
