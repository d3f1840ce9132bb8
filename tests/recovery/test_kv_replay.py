"""Stores that are behind their changelog, ahead of it, or damaged; changelogs that are damaged."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.reserved_offsets import ReservedOffsets, write_reserved
from tests.support.harness.kv_tablet import KvTable
from tests.support.harness.tablet import TabletHarness

ROWS = [(number, "text" * 5, number) for number in range(30)]


async def _written(directory: Path, batches: int) -> int:
    """A table with some batches of rows; returns its id. The tablet is stopped."""
    async with TabletHarness(directory) as tablet:
        table = KvTable.create(tablet)
        for number in range(batches):
            await table.upsert(*[(key, text, number) for key, text, _ in ROWS])
        return table.table_id


async def _rows(directory: Path, table_id: int) -> list[Any]:
    """The rows after another start. A put without records opens the bucket."""
    async with TabletHarness(directory) as tablet:
        table = KvTable(tablet, table_id)
        answer = await table.put()
        assert not answer.HasField("error_code"), answer
        assert table.kv.row_count == len(table.rows())
        return table.rows()


def _bucket(directory: Path, kind: str) -> Path:
    (found,) = directory.glob(f"data/*/*/{kind}-0")
    return found


def test_a_store_that_is_missing_is_built_from_the_changelog(tmp_path: Path) -> None:
    async def main() -> None:
        table_id = await _written(tmp_path, 3)
        shutil.rmtree(_bucket(tmp_path, "kv"))
        assert await _rows(tmp_path, table_id) == [(key, text, 2) for key, text, _ in ROWS]

    asyncio.run(main())


def test_a_store_that_is_ahead_of_its_changelog_is_rebuilt(tmp_path: Path) -> None:
    """Power was lost, and the log, which was not synced, lost its end."""

    async def main() -> None:
        table_id = await _written(tmp_path, 2)
        saved = tmp_path.parent / (tmp_path.name + "-log")
        shutil.copytree(_bucket(tmp_path, "log"), saved)
        async with TabletHarness(tmp_path) as tablet:
            await KvTable(tablet, table_id).upsert((1, "lost", 99), (1000, "lost", 99))
        shutil.rmtree(_bucket(tmp_path, "log"))
        shutil.copytree(saved, _bucket(tmp_path, "kv").with_name("log-0"))
        assert await _rows(tmp_path, table_id) == [(key, text, 1) for key, text, _ in ROWS]

    asyncio.run(main())


def test_a_store_that_is_ahead_is_rebuilt_even_if_offsets_are_not_reused(tmp_path: Path) -> None:
    """The changelog continues behind the store's applied offset; the store must not keep rows that it lost."""

    async def main() -> None:
        table_id = await _written(tmp_path, 2)
        saved = tmp_path.parent / (tmp_path.name + "-log")
        shutil.copytree(_bucket(tmp_path, "log"), saved)
        async with TabletHarness(tmp_path) as tablet:
            await KvTable(tablet, table_id).upsert((1, "lost", 99), (1000, "lost", 99))
        shutil.rmtree(_bucket(tmp_path, "log"))
        log = _bucket(tmp_path, "kv").with_name("log-0")
        shutil.copytree(saved, log)
        write_reserved(FileSystem(), str(log), ReservedOffsets(70_000, "another boot"))
        expected = [(key, text, 1) for key, text, _ in ROWS]
        assert await _rows(tmp_path, table_id) == expected
        assert await _rows(tmp_path, table_id) == expected, "and it stays so"
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable(tablet, table_id)
            await table.upsert((1000, "new", 7))
            assert table.kv.applied_offset == table.kv.log.high_watermark > 70_000
            assert table.rows() == [*expected, (1000, "new", 7)]

    asyncio.run(main())


def test_a_damaged_changelog_is_not_replayed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        table_id = await _written(tmp_path, 3)
        shutil.rmtree(_bucket(tmp_path, "kv"))
        (log_file,) = _bucket(tmp_path, "log").glob("*.log")
        content = bytearray(log_file.read_bytes())
        content[len(content) // 2] ^= 0x40
        log_file.write_bytes(content)
        async with TabletHarness(tmp_path) as tablet:
            answer = await KvTable(tablet, table_id).put()
            assert answer.error_code == 26
            assert str(log_file) in answer.error_message
        assert log_file.read_bytes() == content, "nothing was changed"

    asyncio.run(main())


@pytest.mark.parametrize("harm", ["deleted", "emptied", "cut"])
def test_a_changelog_with_a_gap_is_not_replayed(tmp_path: Path, harm: str) -> None:
    """Batches behind the gap are whole and valid, but applied to the state before it they would give wrong rows."""

    async def main() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable.create(tablet)
            for number in range(3):
                await table.upsert(*[(key, text, number) for key, text, _ in ROWS])
                table.kv.log.roll()
        shutil.rmtree(_bucket(tmp_path, "kv"))
        segments = sorted(_bucket(tmp_path, "log").glob("*.log"))
        second = segments[1]
        if harm == "deleted":
            second.unlink()
        else:
            second.write_bytes(b"" if harm == "emptied" else second.read_bytes()[:-5])
        kept = {path.name: path.read_bytes() for path in segments if path.exists()}
        async with TabletHarness(tmp_path) as tablet:
            answer = await KvTable(tablet, table.table_id).put()
            assert answer.error_code == 26
            assert second.name in answer.error_message
        assert {name: (second.parent / name).read_bytes() for name in kept} == kept, "nothing was changed"

    asyncio.run(main())


def test_a_store_that_fails_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The put is in the changelog, but its rows are not in the store: it gets error 11, and the rows appear later."""

    async def main() -> None:
        async with TabletHarness(tmp_path) as tablet:
            tablet.coordinator.now_ms = int(time.time() * 1000)  # Writers of long ago would be forgotten.
            table = KvTable.create(tablet)
            await table.upsert((1, "a", 1))
            store = table.kv.store
            monkeypatch.setattr(store, "_database", _Failing(store._database, "IO error: No space left", "write"))
            assert (await table.upsert((1, "b", 2), writer_id=5, sequence=0)).error_code == 11
            assert (await table.upsert((1, "c", 3), writer_id=5, sequence=1)).error_code == 11
            tablet.coordinator.now_ms += 10_000
            repeated = await table.upsert((1, "b", 2), writer_id=5, sequence=0)
            assert repeated.log_end_offset == 3
            assert table.rows() == [(1, "b", 2)]
            assert not (await table.upsert((1, "c", 3), writer_id=5, sequence=1)).HasField("error_code")
            assert table.rows() == [(1, "c", 3)]

    asyncio.run(main())


def test_damaged_rows_are_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        table_id = await _written(tmp_path, 2)
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable(tablet, table_id)
            await table.put()
            store = table.kv.store
            monkeypatch.setattr(store, "_database", _Failing(store._database, "Corruption: block", "get"))
            assert (await table.upsert((1, "x", 1))).error_code == 11
        directory = _bucket(tmp_path, "kv")
        assert (directory / "db.is-damaged").exists()
        assert len(await _rows(tmp_path, table_id)) == len(ROWS)
        assert sorted(entry.name for entry in directory.iterdir()) == ["db", "db.damaged"]

    asyncio.run(main())


class _Failing:
    """A database with one operation that fails."""

    def __init__(self, database: Any, text: str, operation: str) -> None:
        self._database, self._text, self._operation = database, text, operation

    def __getattr__(self, name: str) -> Any:
        return self._fail if name == self._operation else getattr(self._database, name)

    def _fail(self, *_: object) -> None:
        raise RuntimeError(self._text)
