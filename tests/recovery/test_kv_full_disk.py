"""Puts whose changelog finds no room: their rows are taken back, and everything goes on when there is room again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.faulty_files import FaultyFiles
from tests.support.kv_tablet import KvTable, replayed
from tests.support.tablet import TabletHarness, eventually


def test_rows_of_failed_puts_are_not_seen_by_later_ones(tmp_path: Path) -> None:
    async def main() -> None:
        files = FaultyFiles(tmp_path)
        async with TabletHarness(tmp_path, files=files) as tablet:
            table = KvTable.create(tablet)
            await table.upsert((1, "a", 1), (2, "b", 2))
            files.free_space_bytes = 0
            failed = [table.send(table.batch([("put", (1, f"lost {number}", 0))])) for number in range(3)]
            failed.append(table.send(table.batch([("delete", (2, "", 0)), ("put", (3, "lost", 0))])))
            for answer in failed:
                assert (await answer).buckets_resp[0].error_code == 70
            await eventually(lambda: table.kv.log.log_end_offset == 2, "the offsets to be taken back")
            files.free_space_bytes = None
            assert (await table.upsert((1, "c", 3), (3, "d", 4))).log_end_offset == 5
            assert table.rows() == [(1, "c", 3), (2, "b", 2), (3, "d", 4)]
            assert [change.kind for change in await table.changelog()] == ["+I", "+I", "-U", "+U", "+I"]
            assert replayed(await table.changelog(), table.key) == table.state()
            assert table.kv.row_count == 3

    asyncio.run(main())
