"""PUT_KV on a tablet: changelog, state, idempotence, errors, restarts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fluss.errors import ErrorCode
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.storage.kv import limits
from fluss.server.storage.kv.store import KvStore
from fluss.server.tablet.buckets.local_bucket import BROKEN_RETRY_MS
from tests.support.harness.kv_tablet import COLUMNS, KvTable, replayed
from tests.support.harness.tablet import HeldFiles, TabletHarness
from tools.servers.messages import path
from tools.waiting import eventually

Scenario = Callable[[KvTable], Awaitable[None]]


def run(directory: Path, scenario: Scenario, **table: Any) -> None:
    async def main() -> None:
        async with TabletHarness(directory) as tablet:
            await scenario(KvTable.create(tablet, **table))

    asyncio.run(main())


def test_the_changelog_is_that_of_the_worked_example(tmp_path: Path) -> None:
    """The walk through insert, update and delete, from offset 0 on."""

    async def scenario(table: KvTable) -> None:
        a, b, c = (1, "a", None), (1, "b", None), (1, "c", None)
        writer = {"writer_id": 7}
        first = await table.put(("put", a), ("put", b), ("delete", (2, None, None)), sequence=0, **writer)
        assert first.log_end_offset == 3
        assert (await table.put(("delete", a), ("put", c), sequence=1, **writer)).log_end_offset == 5
        assert (await table.put(("delete", (9, None, None)), sequence=2, **writer)).log_end_offset == 6
        assert (await table.put(("put", c), sequence=3, **writer)).log_end_offset == 8
        assert (await table.put(("put", c), sequence=3, **writer)).log_end_offset == 8
        assert (await table.put(("put", c), sequence=9, **writer)).error_code == 31
        assert [(change.offset, change.kind, change.row[1]) for change in await table.changelog()] == [
            (0, "+I", "a"), (1, "-U", "a"), (2, "+U", "b"), (3, "-D", "b"), (4, "+I", "c"), (6, "-U", "c"),
            (7, "+U", "c"),
        ]  # fmt: skip
        assert table.rows() == [c]
        assert table.kv.row_count == 1
        assert table.kv.applied_offset == 8

    run(tmp_path, scenario)


@pytest.mark.parametrize("log_format", ["ARROW", "COMPACTED", "INDEXED"])
def test_large_batches_with_duplicates_and_deletes(tmp_path: Path, log_format: str) -> None:
    async def scenario(table: KvTable) -> None:
        rows = [(number % 700, f"row {number}", number if number % 3 else None) for number in range(5000)]
        await table.upsert(*rows)
        await table.put(*[("delete" if row[0] % 2 else "put", row) for row in rows[:1400]])
        expected = {row[0]: row for row in rows}
        for row in rows[:1400]:
            expected.pop(row[0], None)
            if not row[0] % 2:
                expected[row[0]] = row
        assert sorted(table.rows()) == sorted(expected.values())
        assert table.kv.row_count == len(expected)
        assert replayed(await table.changelog(), table.key) == table.state()

    run(
        tmp_path,
        scenario,
        properties={
            "table.log.format": log_format,
            "table.kv.format": "INDEXED" if log_format == "INDEXED" else "COMPACTED",
        },
    )


def test_only_new_rows_in_a_wal_image(tmp_path: Path) -> None:
    async def scenario(table: KvTable) -> None:
        await table.upsert((1, "a", 1), (1, "b", 2), (2, "c", 3))
        await table.put(("put", (2, "d", 4)), ("delete", (2, "", 0)), ("delete", (5, "", 0)))
        assert [change[1:] for change in await table.changelog()] == [
            ("+U", (1, "a", 1)), ("+U", (1, "b", 2)), ("+U", (2, "c", 3)), ("+U", (2, "d", 4)), ("-D", (2, "d", 4))
        ]  # fmt: skip
        assert table.rows() == [(1, "b", 2)]
        assert table.kv.row_count == -1

    run(tmp_path, scenario, properties={"table.changelog.image": "WAL"})


def test_puts_in_flight_see_each_other_and_lookups_see_none_of_them(tmp_path: Path) -> None:
    async def main() -> None:
        files = HeldFiles()
        async with TabletHarness(tmp_path, files=files) as tablet:
            table = KvTable.create(tablet)
            await table.upsert((1, "a", 0))
            files.syncs.clear()
            waiting = [table.send(table.batch([("put", (1, f"v{number}", number))])) for number in range(4)]
            waiting.append(table.send(table.batch([("delete", (1, "", 0)), ("put", (2, "x", 1))])))
            await eventually(lambda: table.kv.log.log_end_offset == 11, "the puts to be accepted")
            assert table.rows() == [(1, "a", 0)]
            assert len(await table.changelog()) == 1
            files.let_go()
            assert [(await answer).buckets_resp[0].log_end_offset for answer in waiting] == [3, 5, 7, 9, 11]
            assert table.rows() == [(2, "x", 1)]
            assert replayed(await table.changelog(), table.key) == table.state()

    asyncio.run(main())


def test_rows_are_there_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable.create(tablet)
            table_id = table.table_id
            tablet.coordinator.now_ms = int(time.time() * 1000)  # Writers of long ago would be forgotten.
            await table.upsert(*[(number, str(number), number) for number in range(300)])
            await table.put(("delete", (7, "", 0)), writer_id=3, sequence=0)
            before = table.state()
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable(tablet, table_id)
            answer = await table.put(("delete", (7, "", 0)), writer_id=3, sequence=0)
            assert answer.log_end_offset == 301
            assert table.state() == before
            assert table.kv.row_count == 299

    asyncio.run(main())


def test_a_dropped_table_leaves_no_files(tmp_path: Path) -> None:
    async def main() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable.create(tablet)
            await table.upsert((1, "a", 1))
            directory = Path(table.kv.log.directory).parent
            assert (directory / "kv-0" / "db").is_dir()
            request = pb.DropTableRequest(table_path=path("t"), ignore_if_not_exists=False)
            tablet.coordinator.call(ApiKey.DROP_TABLE, request)
            tablet.service.registry.follow_catalog()
            await eventually(lambda: not directory.exists(), "the directory to go")

    asyncio.run(main())


def test_wrong_requests_are_results_of_their_bucket(tmp_path: Path) -> None:
    async def scenario(table: KvTable) -> None:
        batch = table.batch([("put", (1, "a", 1))])
        for broken, code in (
            (batch[:-1], 14),
            (batch[:-1] + bytes((batch[-1] ^ 1,)), 14),
            (b"", 14),
            (table.batch([("put", (1, "a", 1))]).replace(b"\x01\x00\x00\xff", b"\x05\x00\x00\xff"), 14),
        ):
            answer = (await table.send(broken)).buckets_resp[0]
            assert answer.error_code == code, answer
        assert (await table.upsert((1, "a", 1), acks=5)).error_code == 18
        assert (await table.upsert((1, "a", 1), targets=[1])).error_code == 35
        assert (await table.upsert((1, "a", 1), targets=[0, 9])).error_code == 35
        assert table.rows() == []
        assert await table.changelog() == []

    run(tmp_path, scenario)


def test_puts_are_refused_while_compaction_lags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(table: KvTable) -> None:
        await table.upsert((1, "a", 1), writer_id=4, sequence=0)
        monkeypatch.setattr(KvStore, "is_pressed", True)
        assert (await table.upsert((1, "b", 1), writer_id=4, sequence=1)).error_code == 72
        assert (await table.upsert((1, "b", 1), writer_id=4, sequence=1, version=1)).error_code == 11
        assert (await table.upsert((1, "a", 1), writer_id=4, sequence=0)).log_end_offset == 1, "it was done before"
        monkeypatch.undo()
        monkeypatch.setattr(limits, "MAX_PENDING_BYTES", 0)
        assert (await table.upsert((1, "b", 1), writer_id=4, sequence=1)).error_code == 72
        monkeypatch.undo()
        assert not (await table.upsert((1, "b", 1), writer_id=4, sequence=1)).HasField("error_code")
        assert table.rows() == [(1, "b", 1)]

    run(tmp_path, scenario)


def test_old_clients_cannot_write_keys_that_they_encode_differently(tmp_path: Path) -> None:
    async def scenario(table: KvTable) -> None:
        assert (await table.upsert((1, "a", 1), version=0)).error_code == 2
        assert not (await table.upsert((1, "a", 1), version=1)).HasField("error_code")

    columns = [COLUMNS[0], {"name": "name", "data_type": {"type": "STRING", "nullable": False}}, COLUMNS[2]]
    run(
        tmp_path,
        scenario,
        columns=columns,
        primary_key=["id", "name"],
        bucket_key=["id"],
        properties={"table.datalake.format": "paimon"},
    )


def test_log_tables_accept_no_puts(tmp_path: Path) -> None:
    async def main() -> None:
        async with TabletHarness(tmp_path) as tablet:
            batch = KvTable.create(tablet, "other").batch([("put", (1, "a", 1))])
            table = KvTable(tablet, tablet.create_table("log"))
            assert (await table.send(batch)).buckets_resp[0].error_code == 20

    asyncio.run(main())


def test_rows_that_cannot_be_stored_are_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any failure between the buffer and the store, the store fails and is replayed when opened again."""

    async def scenario(table: KvTable) -> None:
        await table.upsert((1, "a", 1))

        def no_memory(*_: Any) -> None:
            raise MemoryError("no room to sort")

        with monkeypatch.context() as patch:
            patch.setattr(KvStore, "write_steps", no_memory)
            answer = await table.upsert((2, "b", 2))
        assert answer.error_code == ErrorCode.KV_STORAGE_EXCEPTION
        assert "no room to sort" in answer.error_message
        refused = await table.upsert((3, "c", 3))
        assert refused.error_code == ErrorCode.KV_STORAGE_EXCEPTION
        table.tablet.coordinator.now_ms += BROKEN_RETRY_MS
        await table.upsert((4, "d", 4))
        assert table.rows() == [(1, "a", 1), (2, "b", 2), (4, "d", 4)]
        assert table.rows() == sorted(replayed(await table.changelog(), table.key).values())

    run(tmp_path, scenario)
