"""Merge engines, partial updates, deletes and auto-increment columns through PUT_KV."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness.kv_tablet import COLUMNS, KvTable, replayed
from tests.support.harness.tablet import TabletHarness

Scenario = Callable[[KvTable], Awaitable[None]]


def run(directory: Path, scenario: Scenario, **table: Any) -> None:
    async def main() -> None:
        async with TabletHarness(directory) as tablet:
            kv_table = KvTable.create(tablet, **table)
            await scenario(kv_table)
            if kv_table.rules.has_full_image:
                assert replayed(await kv_table.changelog(), kv_table.key) == kv_table.state()

    asyncio.run(main())


def test_the_first_row_is_kept(tmp_path: Path) -> None:
    async def scenario(table: KvTable) -> None:
        await table.upsert((1, "a", 1), (1, "b", 2), (2, "c", 3))
        answer = await table.put(("put", (2, "d", 4)), ("delete", (1, "", 0)))
        assert answer.log_end_offset == 3, "nothing changed: one offset for an empty batch"
        assert table.rows() == [(1, "a", 1), (2, "c", 3)]
        refused = await table.upsert((1, "x", None), targets=[0, 1])
        assert refused.error_code == -1

    run(tmp_path, scenario, properties={"table.merge-engine": "first_row"})


@pytest.mark.parametrize(
    ("type_name", "versions"),
    [("BIGINT", (None, 5, 4, 5)), ("TIMESTAMP_WITHOUT_TIME_ZONE", (None, (5, 10), (5, 9), (5, 10)))],
)
def test_the_highest_version_is_kept(tmp_path: Path, type_name: str, versions: tuple[Any, ...]) -> None:
    columns = [*COLUMNS[:2], {"name": "version", "data_type": {"type": type_name}}]
    if type_name != "BIGINT":
        columns[2]["data_type"]["precision"] = 9

    async def scenario(table: KvTable) -> None:
        null, high, low, equal = versions
        await table.upsert((1, "first", null), (1, "second", null))
        await table.upsert((1, "high", high))
        await table.upsert((1, "low", low), (1, "none", null))
        assert table.rows() == [(1, "high", high)]
        await table.upsert((1, "equal", equal))
        assert table.rows() == [(1, "equal", equal)]

    properties = {"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "version"}
    run(tmp_path, scenario, columns=columns, properties=properties)


def test_partial_updates_keep_the_other_columns(tmp_path: Path) -> None:
    async def scenario(table: KvTable) -> None:
        await table.upsert((1, "a", 99), targets=[0, 1])
        await table.upsert((1, "ignored", 7), targets=[0, 2])
        await table.upsert((1, None, None), (2, "b", 1), targets=[0, 1])
        assert table.rows() == [(1, None, 7), (2, "b", None)]
        end = (await table.upsert((1, "x", 5), targets=[0])).log_end_offset
        assert [change.kind for change in await table.changelog()] == ["+I", "-U", "+U", "-U", "+U", "+I"]
        assert end == 7
        await table.upsert((3, "x", 5), targets=[0])
        assert (3, None, None) in table.rows()
        await table.put(("delete", (1, None, None)), ("delete", (2, None, None)), targets=[0, 1])
        assert table.rows() == [(1, None, 7), (3, None, None)]
        await table.upsert((4, "all", 4), targets=[0, 1, 2])
        assert table.rows()[-1] == (4, "all", 4)

    run(tmp_path, scenario)


def test_no_partial_updates_if_a_column_is_not_nullable(tmp_path: Path) -> None:
    columns = [*COLUMNS[:2], {"name": "score", "data_type": {"type": "BIGINT", "nullable": False}}]

    async def scenario(table: KvTable) -> None:
        assert (await table.upsert((1, "a", 0), targets=[0, 1])).error_code == 35
        assert not (await table.upsert((1, "a", 0), targets=[2, 1, 0])).HasField("error_code")

    run(tmp_path, scenario, columns=columns)


@pytest.mark.parametrize(("behavior", "code", "left"), [("IGNORE", None, 1), ("DISABLE", 57, 1), ("ALLOW", None, 0)])
def test_deletes(tmp_path: Path, behavior: str, code: int | None, left: int) -> None:
    async def scenario(table: KvTable) -> None:
        await table.upsert((1, "a", 0))
        answer = await table.put(("put", (2, "b", 1)), ("delete", (1, None, None)))
        assert (answer.error_code if answer.HasField("error_code") else None) == code
        assert [row[0] for row in table.rows()].count(1) == left
        await table.put(("delete", (1, None, None)), mode=1)
        assert 1 not in [row[0] for row in table.rows()], "overwriting does not look at the behaviour"

    run(tmp_path, scenario, properties={"table.delete.behavior": behavior})


def test_new_rows_get_numbers(tmp_path: Path) -> None:
    async def scenario(table: KvTable) -> None:
        assert (await table.upsert((1, "a", 5))).error_code == 35
        assert (await table.put(("delete", (1, "a", 5)))).error_code == 35
        await table.upsert((1, "a", 5), (2, "b", None), (1, "c", None), targets=[0, 1])
        await table.upsert((1, "d", 77), (3, "e", None), targets=[0, 1])
        assert table.rows() == [(1, "d", 1), (2, "b", 2), (3, "e", 3)]
        await table.put(("delete", (1, None, None)), targets=[0, 1])
        assert table.rows()[0] == (1, None, 1)

    run(tmp_path, scenario, schema={"auto_increment_column": ["score"]})


AGGREGATES = [
    ("sum", "TINYINT", {}, (100, 100), -56),
    ("sum", "FLOAT", {}, (0.1, 0.2), 0.30000001192092896),
    ("sum", "DECIMAL", {"precision": 4, "scale": 2}, (9999, 1), None),
    ("product", "DECIMAL", {"precision": 10, "scale": 2}, (150, -33), -50),
    ("product", "INTEGER", {}, (2**30, 4), 0),
    ("max", "STRING", {}, ("b", "ä"), "ä"),
    ("min", "DOUBLE", {}, (float("inf"), 1.0), 1.0),
    ("max", "TIMESTAMP_WITHOUT_TIME_ZONE", {"precision": 9}, ((5, 1), (5, 2)), (5, 2)),
    ("last_value", "STRING", {}, ("a", None), None),
    ("last_value_ignore_nulls", "STRING", {}, ("a", None), "a"),
    ("first_value", "STRING", {}, ("a", "b"), "a"),
    ("first_value_ignore_nulls", "STRING", {}, (None, "b"), "b"),
    ("listagg", "STRING", {}, ("a", "b"), "a,b"),
    ("string_agg", "STRING", {}, ("a", None), "a"),
    ("bool_and", "BOOLEAN", {}, (True, False), False),
    ("bool_or", "BOOLEAN", {}, (None, True), True),
]


@pytest.mark.parametrize(("function", "type_name", "more", "values", "expected"), AGGREGATES)
def test_aggregation(
    tmp_path: Path, function: str, type_name: str, more: dict[str, int], values: tuple[Any, Any], expected: Any
) -> None:
    column = {"name": "v", "data_type": {"type": type_name, **more}, "agg_function": {"type": function}}

    async def scenario(table: KvTable) -> None:
        await table.upsert((1, values[0]))
        await table.upsert((1, values[1]))
        assert table.rows() == [(1, expected)]
        await table.put(("put", (1, values[0])), ("delete", (1, None)), mode=1)
        assert table.rows() == []

    properties = {"table.merge-engine": "aggregation"}
    run(tmp_path, scenario, columns=[COLUMNS[0], column], properties=properties)


def test_partial_aggregation_keeps_the_other_columns(tmp_path: Path) -> None:
    columns = [dict(column) for column in COLUMNS]
    columns[2]["agg_function"] = {"type": "sum"}

    async def scenario(table: KvTable) -> None:
        await table.upsert((1, "a", 5), targets=[0, 2])
        await table.upsert((1, "b", 6), targets=[0, 2])
        assert table.rows() == [(1, "a", 11)], "the first row is stored as it was sent"
        assert (await table.put(("delete", (1, None, None)))).log_end_offset == 4, "ignored: an empty batch"

    run(tmp_path, scenario, columns=columns, properties={"table.merge-engine": "aggregation"})


def test_partial_updates_of_many_rows(tmp_path: Path) -> None:
    async def scenario(table: KvTable) -> None:
        await table.upsert(*[(number, f"old {number}", number) for number in range(0, 300, 2)])
        await table.upsert(*[(number, f"new {number}", -1) for number in range(300)], targets=[0, 1])
        expected = [(number, f"new {number}", None if number % 2 else number) for number in range(300)]
        assert sorted(table.rows()) == expected
        assert table.kv.row_count == 300

    run(tmp_path, scenario)
