"""Data files: invalid properties are refused, and a writer that fails leaves no file behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.iceberg import writing
from fluss.lake.tables.iceberg.statistics import file_statistics
from fluss.lake.tables.iceberg.tables import IcebergFormat, identifier
from fluss.lake.tables.interface.format import CommitMessage, LakeSplit
from fluss.model.paths import TableBucket
from tests.support.lake.tables import PEOPLE, TABLE_ID, made, people, spec_of

FAR_FUTURE_MS = 10**14
SPLIT = LakeSplit(TableBucket(TABLE_ID, None, 0), None, 4, 8)


def failing_at(call: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, except that one call of it fails."""
    calls: list[None] = []

    def call_or_fail(*arguments: Any) -> Any:
        calls.append(None)
        if len(calls) == call:
            raise OSError("no room")
        return function(*arguments)

    return call_or_fail


def test_a_writer_that_fails_leaves_nothing_behind(lake: IcebergFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    table_writer = made(lake, spec_of(PEOPLE, properties={"iceberg.write.target-file-size-bytes": "1"}))
    table_writer.commit(table_writer.write(people(0, 4)))
    target = table_writer.table.target()
    (file,) = table_writer.table.refreshed().plan_files()
    rows = [table_writer.batch(people(each, 1), each) for each in range(4, 8)]
    with monkeypatch.context() as patch:
        patch.setattr(writing, "ROW_GROUP_ROWS", 1)
        patch.setattr(writing, "file_statistics", failing_at(3, file_statistics))
        with pytest.raises(FlussError, match="no room"):
            target.write_split(SPLIT, rows)  # two files were complete, the third one was being written
    with monkeypatch.context() as patch:
        patch.setattr(writing, "_data_file", failing_at(1, writing._data_file))
        with pytest.raises(FlussError, match="no room"):
            target.delete_rows(CommitMessage(SPLIT, 0), {file: pa.array([1])})
    with monkeypatch.context() as patch:
        patch.setattr(writing, "parquet_options", lambda _: {"compression": "none", "version": "unheard of"})
        with pytest.raises(FlussError, match="unheard of"):
            target.write_split(SPLIT, rows)
    assert table_writer.table.refreshed().unreferenced_files(FAR_FUTURE_MS) == []


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("write.parquet.compression-codec", "zzz", "one of zstd, snappy"),
        ("write.target-file-size-bytes", "128MB", "a number of bytes, without a unit"),
        ("write.target-file-size-bytes", "0", "a number of bytes"),
        ("write.parquet.dict-size-bytes", "-1", "a number of bytes"),
        ("write.parquet.compression-level", "high", "a whole number"),
        ("write.parquet.compression-level", "99", "a level of gzip"),
    ],
)
def test_invalid_write_properties(lake: IcebergFormat, key: str, value: str, words: str) -> None:
    gzip = {"iceberg.write.parquet.compression-codec": "gzip"}
    bad = spec_of(PEOPLE, properties={**gzip, f"iceberg.{key}": value})
    with pytest.raises(FlussError, match=f"'iceberg.{key}' of the table must be {words}.*, got '{value}'") as caught:
        lake.create_table(bad)
    assert caught.value.error_code == ErrorCode.INVALID_TABLE_EXCEPTION
    assert not lake.catalog.table_exists(identifier(bad.path))
    good = type(bad)(bad.path, spec_of(PEOPLE, properties=gzip).descriptor)
    lake.create_table(good)
    with pytest.raises(FlussError, match=words):
        lake.change_properties(good, bad)
    lake.change_properties(bad, good)  # a table that somehow has the property can still be corrected
