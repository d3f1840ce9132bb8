"""Puts of all sizes, many of them in flight at once, against a dict: the key filter and the recent rows.

The memory for recent rows is so small that rows are evicted all the time, and between the rounds the tablet is opened
again, which leaves a bucket without its key filter.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness.kv_tablet import KvTable, replayed
from tests.support.harness.tablet import TabletHarness

KEYS = 600
SIZES = (1, 5, 70, 300)
PUTS_AT_ONCE = 6
TURNS = 8
RECENT_ROWS_BYTES = 20_000
MERGED = {"first_row": {"table.merge-engine": "first_row"}, "last_row": {}}


def _records(choice: random.Random, engine: str, mark: str) -> list[tuple[str, tuple[Any, ...]]]:
    size = choice.choice(SIZES)
    keys = [choice.randrange(KEYS) for _ in range(size)]
    if choice.random() < 0.5:
        keys = choice.sample(range(KEYS), size)
    deletes = 0.0 if engine == "first_row" or choice.random() < 0.4 else 0.2
    return [("delete" if choice.random() < deletes else "put", (key, mark, key)) for key in keys]


def _apply(model: dict[int, tuple[Any, ...]], engine: str, records: list[tuple[str, tuple[Any, ...]]]) -> None:
    for kind, row in records:
        if kind == "delete":
            model.pop(row[0], None)
        elif engine != "first_row" or row[0] not in model:
            model[row[0]] = row


@pytest.mark.parametrize("engine", MERGED)
def test_puts_of_all_sizes_see_what_was_there(tmp_path: Path, engine: str) -> None:
    choice = random.Random(11)
    model: dict[int, tuple[Any, ...]] = {}

    async def turns(tablet: TabletHarness, table: KvTable) -> None:
        for turn in range(TURNS):
            answers = []
            for number in range(PUTS_AT_ONCE):
                records = _records(choice, engine, f"{turn}.{number}")
                _apply(model, engine, records)
                answers.append(table.send(table.batch(records)))
            for answer in answers:
                assert not (await answer).buckets_resp[0].HasField("error_code")
            assert sorted(table.rows()) == sorted(model.values())
        changes = await table.changelog()
        assert replayed(changes, table.key) == table.state()
        known: set[int] = set()
        for change in changes:
            assert (change.kind == "+I") == (change.row[0] not in known), change
            (known.discard if change.kind == "-D" else known.add)(change.row[0])
        assert table.kv.row_count == len(model)

    async def main() -> None:
        async with TabletHarness(tmp_path, kv_recent_rows_size=RECENT_ROWS_BYTES) as tablet:
            table = KvTable.create(tablet, properties=MERGED[engine])
            await turns(tablet, table)
        async with TabletHarness(tmp_path, kv_recent_rows_size=RECENT_ROWS_BYTES) as tablet:
            await turns(tablet, KvTable(tablet, table.table_id))

    asyncio.run(main())
