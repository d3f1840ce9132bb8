"""Stored rows are those that a replay of the changelog gives, even if a column cannot hold the values exactly."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from fluss.codec.arrow.compression import NO_COMPRESSION
from fluss.codec.keys.encoding import KeyEncoding
from fluss.codec.rows.columns import RowFormat
from fluss.errors import ErrorCode
from fluss.model import types as t
from fluss.model.schema import Column, Schema
from fluss.server.storage.kv.table_format import KvTableFormat
from fluss.server.tablet.kv.merge.columns import COLUMN_WISE_MIN_RECORDS
from tests.support.harness.kv_tablet import KvTable
from tests.support.harness.tablet import TabletHarness

TIME = {"type": "TIME_WITHOUT_TIME_ZONE", "precision": 0}
TIMESTAMP = "TIMESTAMP_WITHOUT_TIME_ZONE"
COLUMNS = (
    {"name": "id", "data_type": {"type": "INTEGER", "nullable": False}},
    {"name": "time", "data_type": TIME},
    {"name": "second", "data_type": {"type": TIMESTAMP, "precision": 0}},
    {"name": "micro", "data_type": {"type": TIMESTAMP, "precision": 6}},
    {"name": "nano", "data_type": {"type": TIMESTAMP, "precision": 9}},
    {"name": "times", "data_type": {"type": "ARRAY", "element_type": TIME}},
)


def stored_and_replayed(directory: Path, rows: list[tuple[Any, ...]], **table: Any) -> tuple[Any, Any]:
    """The state of a table after a put, and after its store was lost; FlussError codes would fail the test."""

    async def first() -> dict[bytes, tuple[Any, ...]]:
        async with TabletHarness(directory) as tablet:
            made = KvTable.create(tablet, **table)
            answer = await made.upsert(*rows)
            assert not answer.HasField("error_code"), answer
            return made.state()

    async def second() -> dict[bytes, tuple[Any, ...]]:
        async with TabletHarness(directory) as tablet:
            made = KvTable(tablet, 0)
            await made.put()
            return made.state()

    before = asyncio.run(first())
    for kv in directory.glob("data/**/kv-*"):
        shutil.rmtree(kv)
    return before, asyncio.run(second())


@pytest.mark.parametrize("count", [1, 2 * COLUMN_WISE_MIN_RECORDS])
@pytest.mark.parametrize("image", ["FULL", "WAL"])
def test_values_are_stored_as_the_changelog_has_them(tmp_path: Path, count: int, image: str) -> None:
    rows = [(number, 3_723_100, (1_999, 0), (5, 1_234), (5, 1_234), [3_723_900, None]) for number in range(count)]
    options = {"columns": COLUMNS, "properties": {"table.changelog.image": image}}
    before, after = stored_and_replayed(tmp_path, rows, **options)
    assert before == after
    assert list(before.values()) == [
        (number, 3_723_000, (1_000, 0), (5, 1_000), (5, 1_234), [3_723_000, None]) for number in range(count)
    ]


@pytest.mark.parametrize(
    ("key_type", "exact", "finer"),
    [(TIME, 3_723_000, 3_723_100), ({"type": TIMESTAMP, "precision": 6}, (5, 1_000), (5, 1_001))],
    ids=["TIME(0)", "TIMESTAMP(6)"],
)
@pytest.mark.parametrize("count", [1, 2 * COLUMN_WISE_MIN_RECORDS])
def test_keys_that_the_changelog_cannot_hold_are_refused(
    tmp_path: Path, key_type: dict[str, Any], exact: Any, finer: Any, count: int
) -> None:
    columns = (
        {"name": "id", "data_type": {"type": "INTEGER", "nullable": False}},
        {"name": "at", "data_type": {**key_type, "nullable": False}},
    )

    async def main() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable.create(tablet, columns=columns, primary_key=["id", "at"])
            rows = [(number, exact) for number in range(count)]
            refused = await table.upsert(*rows, (count, finer))
            assert refused.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION
            assert "digits beyond the precision" in refused.error_message
            assert table.rows() == []
            await table.upsert(*rows)
            await table.put(("delete", rows[0]), ("delete", (0, finer)))
            assert table.rows() == rows[1:]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("data_type", "expected"),
    [
        (t.IntType(), False),
        (t.BytesType(), False),
        (t.BinaryType(4), True),
        (t.TimeType(0), True),
        (t.TimeType(3), False),
        (t.TimestampType(3), False),
        (t.TimestampLtzType(0), True),
        (t.TimestampLtzType(6), True),
        (t.TimestampType(9), False),
        (t.MapType(t.StringType(), t.TimestampType(6)), True),
        (t.RowType((t.RowField("a", t.ArrayType(t.BinaryType(1))),)), True),
        (t.RowType((t.RowField("a", t.ArrayType(t.DateType())),)), False),
    ],
    ids=str,
)
def test_only_tables_with_such_columns_are_checked(data_type: t.DataType, expected: bool) -> None:
    schema = Schema((Column("id", t.IntType(nullable=False)), Column("c", data_type)), ("id",)).numbered()
    table_format = KvTableFormat(
        {1: schema}, 1, RowFormat.COMPACTED, "ARROW", NO_COMPRESSION, ("id",), KeyEncoding.COMPACTED, counts_rows=True
    )
    assert table_format.may_change_values == expected
