"""Removal of staged files, but never of one that is committed or may be."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fluss.errors import FlussError
from fluss.model.paths import TableBucket
from tests.support.harness.staged_tablet import StagedTablet, run_tablet, staged
from tools.waiting import eventually


def test_aborted_attempts_can_never_be_decided_and_decided_ones_never_aborted(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        aborted, winner = await staged(tablet, table, 1, [1]), await staged(tablet, table, 2, [2])
        await tablet.prepare(table, aborted, winner)
        await tablet.abort(table, writer_ids=[1])
        assert [file.name for file in tablet.staged_files()] == ["2.staged"]
        with pytest.raises(FlussError, match="has not staged"):
            tablet.decide(table, aborted, winner)
        await tablet.stage(table, aborted, b"".join(aborted.sent[None, 0]))
        with pytest.raises(FlussError, match="aborted or has expired"):
            tablet.decide(table, aborted, winner)
        await tablet.abort(table, writer_ids=[1])
        assert tablet.last_batch_id(table) is None
        assert tablet.decide(table, winner)
        await tablet.abort(table)
        await tablet.abort(table, writer_ids=[2])
        assert len(tablet.staged_files()) == 1
        await tablet.apply(table)
        assert await tablet.rows(table) == [2]

    run_tablet(tmp_path, scenario)


def test_abandoned_files_expire_unless_they_are_decided(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        forgotten = await staged(tablet, table, 1, [1], transaction="forgotten")
        decided = await staged(tablet, table, 2, [2])
        await tablet.prepare(table, forgotten)
        await tablet.prepare(table, decided)
        cleaning = tablet.service.staging.cleaning
        tablet.coordinator.now_ms += 30_000
        await cleaning.round()
        assert len(tablet.staged_files()) == 2
        assert tablet.decide(table, decided)
        tablet.coordinator.now_ms += 40_000
        await cleaning.round()
        assert [file.name for file in tablet.staged_files()] == ["2.staged"]
        await tablet.apply(table)
        assert await tablet.rows(table) == [2]
        log, _ = tablet.service.registry.find(TableBucket(table, None, 0)).opened()
        await cleaning.round()
        assert (tablet.staged_files(), log.writers.protected) == ([], set())

    run_tablet(tmp_path, scenario, staged_append_expiration_ms=60_000)


def test_rows_of_a_task_that_finished_early_wait_for_the_others_of_their_batch(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        early, late = await staged(tablet, table, 1, [1]), await staged(tablet, table, 2, [2])
        other = await staged(tablet, table, 3, [3], transaction="another")
        for number in range(5):
            tablet.coordinator.now_ms += 40_000
            await tablet.stage(table, late, late.batches([20 + number]))
            await tablet.service.staging.cleaning.round()
        assert [file.name for file in tablet.staged_files()] == ["1.staged", "2.staged"]
        assert await tablet.commit(table, early, late)
        assert await tablet.rows(table) == [1, 2, 20, 21, 22, 23, 24]
        with pytest.raises(FlussError):
            await tablet.prepare(table, other)

    run_tablet(tmp_path, scenario, staged_append_expiration_ms=60_000)


def test_an_expired_attempt_is_refused_by_the_decision(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        attempt = await staged(tablet, table, 1, [1])
        await tablet.prepare(table, attempt)
        tablet.coordinator.now_ms += 61_000
        await tablet.service.staging.cleaning.round()
        assert tablet.staged_files() == []
        await tablet.stage(table, attempt, b"".join(attempt.sent[None, 0]))
        with pytest.raises(FlussError, match="aborted or has expired"):
            tablet.decide(table, attempt)

    run_tablet(tmp_path, scenario, staged_append_expiration_ms=60_000)


def test_files_of_earlier_processes_expire_by_their_time_on_disk(tmp_path: Path) -> None:
    async def before(tablet: StagedTablet) -> None:
        await staged(tablet, tablet.create_table("t"), 1, [1])

    async def after(tablet: StagedTablet) -> None:
        await tablet.service.registry.open_existing()
        await eventually(lambda: list(tablet.service.registry.open_buckets()), "the bucket is open")
        await tablet.service.staging.cleaning.round()
        assert tablet.staged_files() == []

    run_tablet(tmp_path, before)
    (file,) = tmp_path.rglob("*.staged")
    os.utime(file, (1, 1))
    run_tablet(tmp_path, after)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_was_ahead_does_not_keep_files_for_years(tmp_path: Path, restarted: bool) -> None:
    year_ms = 365 * 24 * 3_600_000

    async def ahead(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        tablet.coordinator.now_ms += year_ms
        await staged(tablet, table, 1, [1])
        tablet.coordinator.now_ms -= year_ms
        if not restarted:
            await in_time(tablet)

    async def in_time(tablet: StagedTablet) -> None:
        await tablet.service.registry.open_existing()
        await eventually(lambda: list(tablet.service.registry.open_buckets()), "the bucket is open")
        for left in (1, 0):
            await tablet.service.staging.cleaning.round()
            assert len(tablet.staged_files()) == left
            tablet.coordinator.now_ms += 61_000

    run_tablet(tmp_path, ahead, staged_append_expiration_ms=60_000)
    if restarted:
        (file,) = tmp_path.rglob("*.staged")
        os.utime(file, (time.time() + year_ms / 1000,) * 2)
        run_tablet(tmp_path, in_time, staged_append_expiration_ms=60_000)
