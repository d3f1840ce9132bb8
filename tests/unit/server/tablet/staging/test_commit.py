"""Prepare, decide, apply: the guarantees of each, and which attempt wins."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.model.permissions import Operation, Permission, ResourceType
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import staged_api_pb2 as staged_pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.catalog.records import Acl
from tests.support.harness.staged_tablet import QUERY, Attempt, StagedTablet, run_tablet, staged
from tests.support.servers.log_cluster import arrow_batch
from tests.support.storage.faulty_files import FaultyFiles
from tools.servers.messages import int_column, path, spec, text_column
from tools.waiting import eventually

MISSING = ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION
PARTITIONED = (int_column("id"), text_column("name"))


async def error_of(call: Any) -> FlussError:
    with pytest.raises(FlussError) as caught:
        await call
    return caught.value


def test_prepare_finds_what_is_missing(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        attempt = await staged(tablet, table, 1, [1], [2])
        assert (await error_of(tablet.prepare(table, Attempt(2), attempt, _sending(Attempt(2))))).error_code == MISSING
        attempt.batches([3])
        error = await error_of(tablet.prepare(table, attempt))
        assert error.error_code == MISSING
        assert "2 batches with" in error.message
        assert str(tablet.staged_files()[0]) in error.message
        other = await staged(tablet, table, 3, [5], batch_id=7)
        other.batch_id = 8
        assert "belongs to batch 7" in (await error_of(tablet.prepare(table, other))).message
        assert tablet.last_batch_id(table) is None

    run_tablet(tmp_path, scenario)


def test_nothing_is_decided_without_its_files(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        with pytest.raises(FlussError) as caught:
            tablet.decide(table, _sending(Attempt(1)))
        assert caught.value.error_code == MISSING
        attempt = await staged(tablet, table, 2, [1])
        attempt.batches([2])
        with pytest.raises(FlussError, match="stage and prepare"):
            tablet.decide(table, attempt)
        assert tablet.last_batch_id(table) is None

    run_tablet(tmp_path, scenario)


def _sending(attempt: Attempt) -> Attempt:
    attempt.batches([1])
    return attempt


def test_a_failed_sync_is_not_trusted_when_repeated(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)

    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        attempt = await staged(tablet, table, 1, [1])
        files.failing_syncs.add(".staged")
        assert (await error_of(tablet.prepare(table, attempt))).error_code == ErrorCode.STORAGE_EXCEPTION
        files.failing_syncs.clear()
        assert (await error_of(tablet.prepare(table, attempt))).error_code == MISSING

    run_tablet(tmp_path, scenario, files=files)


def test_a_batch_id_is_decided_once(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        attempts = {number: await staged(tablet, table, number, [number], batch_id=4) for number in (1, 2, 3)}
        await tablet.prepare(table, *attempts.values())
        assert tablet.decide(table, attempts[1], token="first")
        assert tablet.decide(table, attempts[1], token="first"), "the same call, repeated"
        assert not tablet.decide(table, attempts[2], token="second"), "another driver with the same batch"
        old = await staged(tablet, table, 9, [9], batch_id=3, transaction="other")
        old.transaction = QUERY
        assert not tablet.decide(table, old, token="third"), "a driver of an earlier batch"
        await tablet.apply(table, 4)
        assert await tablet.rows(table) == [1]
        assert tablet.last_batch_id(table) == 4
        await tablet.service.staging.cleaning.round()
        assert [file.name for file in tablet.staged_files()] == ["9.staged"], "those that lost are gone"
        fifth = await staged(tablet, table, 5, [50], batch_id=5)
        assert await tablet.commit(table, fifth, token="first")
        assert await tablet.rows(table) == [1, 50]

    run_tablet(tmp_path, scenario)


def test_decided_work_is_found_without_a_request_and_after_a_restart(tmp_path: Path) -> None:
    tables: list[int] = []

    async def before(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        tables.append(table)
        for batch_id in range(3):
            attempt = await staged(tablet, table, batch_id, [batch_id, 10 + batch_id], batch_id=batch_id)
            await tablet.prepare(table, attempt)
            assert tablet.decide(table, attempt)
        assert await tablet.rows(table) == []

    async def after(tablet: StagedTablet) -> None:
        await tablet.service.registry.open_existing()
        await eventually(lambda: list(tablet.service.registry.open_buckets()), "the bucket is open")
        await tablet.service.staging.cleaning.round()
        assert len(tablet.staged_files()) == 3, "decided work is not left-over files"
        background = asyncio.ensure_future(tablet.service.staging.run())
        await eventually(lambda: not tablet.staged_files(), "everything is applied")
        assert await tablet.rows(tables[0]) == [0, 10, 1, 11, 2, 12], "in the order of the decisions"
        background.cancel()

    run_tablet(tmp_path, before)
    run_tablet(tmp_path, after)


def test_files_are_read_in_parts_and_large_batches_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluss.server.storage.staged_files.READ_BYTES", 2000)

    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        attempt = Attempt(1)
        rows = [[number] * (300 if number % 7 == 3 else 3) for number in range(40)]
        for ids in rows:
            await tablet.stage(table, attempt, attempt.batches(ids))
        writer = tablet.produce(table, arrow_batch([-1]))
        assert await tablet.commit(table, attempt)
        await writer
        found = await tablet.rows(table)
        assert [number for number in found if number >= 0] == [number for ids in rows for number in ids]

    run_tablet(tmp_path, scenario)
    monkeypatch.undo()


def test_writer_state_that_would_expire_is_kept_as_long_as_it_is_needed(tmp_path: Path) -> None:
    """Half of a file is in the log; then the server is off for longer than writers live."""
    tables: list[int] = []
    week_ms = 7 * 24 * 3600 * 1000

    async def before(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        tables.append(table)
        attempt = await staged(tablet, table, 1, [1], [2], [3])
        await tablet.prepare(table, attempt)
        assert tablet.decide(table, attempt)
        log, _ = tablet.service.registry.find(TableBucket(table, None, 0)).opened()
        half = b"".join(attempt.sent[None, 0][:2])
        await tablet.produce(table, half)
        now_ms = tablet.coordinator.now_ms
        assert log.expire_writers(now_ms + 2 * week_ms) == 0
        log.checkpoint()

    async def after(tablet: StagedTablet) -> None:
        await tablet.apply(tables[0])
        assert await tablet.rows(tables[0]) == [1, 2, 3]

    run_tablet(tmp_path, before)
    run_tablet(tmp_path, after)  # The clock of the log is the real one, years behind the rows' time stamps.


def test_a_dropped_table_leaves_no_staged_files(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        attempt = await staged(tablet, table, 1, [1])
        await tablet.prepare(table, attempt)
        decided = await staged(tablet, table, 2, [2], transaction="other")
        await tablet.prepare(table, decided)
        assert tablet.decide(table, decided)
        drop = pb.DropTableRequest(table_path=path("t"), ignore_if_not_exists=False)
        tablet.coordinator.call(ApiKey.DROP_TABLE, drop)
        with pytest.raises(FlussError, match="dropped") as caught:
            tablet.decide(table, attempt)
        assert caught.value.error_code == ErrorCode.TABLE_NOT_EXIST
        for call in (tablet.prepare(table, attempt), tablet.apply(table), tablet.abort(table)):
            assert (await error_of(call)).error_code == ErrorCode.TABLE_NOT_EXIST
        await eventually(lambda: not tablet.staged_files(), "the files are gone")
        assert tablet.coordinator.catalog.store.staged.work() == []
        tablet.service.staging.workers.known_buckets()
        await eventually(lambda: not tablet.service.staging.workers.staged_bytes.total, "nothing is counted")

    run_tablet(tmp_path, scenario)


def test_a_dropped_partition_is_a_clear_error_and_others_continue(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t", columns=PARTITIONED, partition_key=("name",))
        for name in ("a", "b"):
            create = pb.CreatePartitionRequest(
                table_path=path("t"), partition_spec=spec(name=name), ignore_if_not_exists=False
            )
            tablet.coordinator.call(ApiKey.CREATE_PARTITION, create)
        tablet.coordinator.catalog.refresh()
        entry = tablet.coordinator.catalog.table_by_id(table)
        assert entry is not None
        ids = {name: partition.partition_id for name, partition in entry.partitions.items()}
        attempt, kept = Attempt(1), Attempt(2, batch_id=1)
        for name in ("a", "b"):
            await tablet.stage(table, attempt, attempt.batches([1], partition=ids[name]), 0, ids[name])
        await tablet.stage(table, kept, kept.batches([2], partition=ids["b"]), 0, ids["b"])
        await tablet.prepare(table, attempt)
        drop = pb.DropPartitionRequest(table_path=path("t"), partition_spec=spec(name="a"), ignore_if_not_exists=False)
        tablet.coordinator.call(ApiKey.DROP_PARTITION, drop)
        with pytest.raises(FlussError) as caught:
            tablet.decide(table, attempt)
        assert caught.value.error_code == ErrorCode.PARTITION_NOT_EXISTS
        assert (await error_of(tablet.prepare(table, attempt))).error_code == ErrorCode.PARTITION_NOT_EXISTS
        assert await tablet.commit(table, kept)
        await tablet.service.staging.cleaning.round()
        await eventually(lambda: not tablet.staged_files(), "nothing is left of either")

    run_tablet(tmp_path, scenario)


def test_a_schema_may_change_between_staging_and_commit(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        attempt = await staged(tablet, table, 1, [1])
        column = pb.PbAddColumn(
            column_name="extra",
            data_type_json=json.dumps({"type": "INTEGER"}).encode(),
            column_position_type=0,
        )
        request = pb.AlterTableRequest(table_path=path("t"), ignore_if_not_exists=False, add_columns=[column])
        tablet.coordinator.call(ApiKey.ALTER_TABLE, request)
        assert await tablet.commit(table, attempt)
        assert await tablet.rows(table) == [1]

    run_tablet(tmp_path, scenario)


def test_appending_waits_for_room_on_a_full_disk(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)

    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        await tablet.produce(table, arrow_batch([0]))
        attempt = await staged(tablet, table, 1, [1], [2])
        await tablet.prepare(table, attempt)
        files.free_space_bytes = 0
        assert tablet.decide(table, attempt)
        error = await error_of(tablet.apply(table, timeout_ms=1500))
        assert error.error_code == ErrorCode.REQUEST_TIME_OUT
        assert "no space left" in error.message
        assert await tablet.rows(table) == [0]
        files.free_space_bytes = None
        await tablet.apply(table)
        assert await tablet.rows(table) == [0, 1, 2]

    run_tablet(tmp_path, scenario, files=files)


def test_a_decided_file_that_cannot_be_read_is_reported_and_nothing_is_skipped(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        attempt = await staged(tablet, table, 1, [1], [2])
        await tablet.prepare(table, attempt)
        (file,) = tablet.staged_files()
        whole = file.read_bytes()
        damaged = bytearray(whole)
        damaged[-1] ^= 1
        file.write_bytes(damaged)
        assert tablet.decide(table, attempt)
        assert "wrong checksum" in (await error_of(tablet.apply(table, timeout_ms=1500))).message
        file.write_bytes(whole[:-1])
        await asyncio.sleep(0)
        await eventually(lambda: "no whole batch" in str(tablet.service.staging.applier._problems), "it is noticed")
        file.write_bytes(whole)
        await tablet.apply(table)
        assert await tablet.rows(table) == [1, 2]

    run_tablet(tmp_path, scenario)


def test_every_step_requires_write_permission(tmp_path: Path) -> None:
    ann: dict[str, Any] = {"principal_name": "ann"}

    async def scenario(tablet: StagedTablet) -> None:
        call = tablet.coordinator.call
        tablet.coordinator.call = lambda key, message, **more: call(  # type: ignore[method-assign]
            key, message, **{"is_internal": not more, **more}
        )
        table = tablet.create_table("t")
        attempt = Attempt(1)
        records = attempt.batches([1])

        async def codes() -> list[int]:
            found = [int((await tablet.stage(table, attempt, records, **ann)).error_code)]
            for step in (
                lambda: tablet.prepare(table, attempt, **ann),
                lambda: asyncio.to_thread(tablet.decide, table, attempt, **ann),
                lambda: tablet.apply(table, **ann),
                lambda: tablet.abort(table, **ann),
                lambda: asyncio.to_thread(
                    tablet.coordinator.call,
                    ApiKey.GET_STAGED_COMMIT,
                    staged_pb.GetStagedCommitRequest(table_id=table, transaction=QUERY),
                    **ann,
                ),
            ):
                try:
                    await step()
                    found.append(0)
                except FlussError as error:
                    found.append(error.error_code)
            return found

        assert await codes() == [ErrorCode.AUTHORIZATION_EXCEPTION] * 6
        acl = Acl(ResourceType.TABLE, "fluss.t", "User", "ann", "*", Operation.WRITE, Permission.ALLOW)
        tablet.coordinator.catalog.store.acls.add([acl])
        assert await codes() == [0] * 6

    run_tablet(tmp_path, scenario, authorizer_enabled=True)


def test_limits_of_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluss.server.apis.staged_rules.MAX_ATTEMPTS_PER_COMMIT", 2)

    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        attempts = [await staged(tablet, table, number, [number]) for number in range(3)]
        error = await error_of(tablet.prepare(table, *attempts))
        assert error.error_code == ErrorCode.RECORD_TOO_LARGE_EXCEPTION
        with pytest.raises(FlussError, match="3 attempts"):
            tablet.decide(table, *attempts)
        with pytest.raises(FlussError, match="twice"):
            tablet.decide(table, attempts[0], attempts[0])
        with pytest.raises(FlussError, match="token"):
            tablet.decide(table, attempts[0], token="x" * 65)
        assert await tablet.commit(table, *attempts[:2])

    run_tablet(tmp_path, scenario)
