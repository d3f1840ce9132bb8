"""Power failures at every moment of a staged commit: a decided batch is there exactly once, another one not at all.

Files lose what was not synced, at random; the catalog keeps what it committed, which SQLite guarantees.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from fluss.errors import FlussError
from fluss.server.storage.staged_files import decode_header
from tests.support.harness.staged_tablet import TIMEOUT_MS, Attempt, StagedTablet, run_tablet
from tests.support.runner.lanes import rounds, seed
from tests.support.servers.log_cluster import arrow_batch
from tests.support.storage.faulty_files import FaultyFiles

ROUNDS = rounds(gate=30, all_lanes=30)
# More changes of files than the whole workload makes: some rounds end without a failure.
MAX_CHANGES = 130
BUCKETS = 2
BATCHES = 3
PLAIN_ROW = -1
# Without power nothing is ever appended: do not wait long for it.
SHORT_MS = 100


def rows_of(batch_id: int, task: int) -> list[list[int]]:
    """The rows of a task, batch by batch; every row of the whole workload is unique."""
    base = batch_id * 1000 + task * 100
    return [[base, base + 1], [base + 2], [base + 3, base + 4]]


async def one_batch(tablet: StagedTablet, table: int, batch_id: int, files: FaultyFiles | None = None) -> None:
    """Two tasks and one attempt that loses, staged, committed, and a plain append in between."""
    attempts = [Attempt(batch_id * 10 + task, batch_id) for task in range(3)]
    for task, attempt in enumerate(attempts):
        for ids in rows_of(batch_id, task):
            for bucket in range(BUCKETS):
                answer = await tablet.stage(table, attempt, attempt.batches(ids, bucket=bucket), bucket)
                if answer.HasField("error_code"):
                    raise FlussError(answer.error_message, answer.error_code)
    await tablet.produce(table, *[arrow_batch([PLAIN_ROW])] * BUCKETS)
    winners = attempts[:2]
    await tablet.prepare(table, *winners)
    tablet.decide(table, *winners)
    while True:
        try:
            await tablet.apply(table, batch_id, timeout_ms=TIMEOUT_MS if files is None else SHORT_MS)
            return
        except FlussError:
            if files is None or files.power_is_off:
                raise


@pytest.mark.parametrize("flush", ["always", pytest.param("os", marks=pytest.mark.all)])
def test_a_decided_batch_survives_and_another_one_leaves_nothing(tmp_path: Path, flush: str) -> None:
    decided_rounds = failed_rounds = 0
    for number in range(ROUNDS // 2):
        rng = random.Random(f"{seed()} {flush} {number}")
        before, after = tmp_path / f"{number}-before", tmp_path / f"{number}-after"
        (before / "data").mkdir(parents=True)
        files = FaultyFiles(before / "data")
        tables: list[int] = []

        async def workload(
            tablet: StagedTablet, files: FaultyFiles = files, tables: list[int] = tables, rng: random.Random = rng
        ) -> None:
            tables.append(tablet.create_table("t", bucket_count=BUCKETS))
            files.power_off_after = rng.randrange(1, MAX_CHANGES)
            with contextlib.suppress(FlussError):
                for batch_id in range(BATCHES):
                    await one_batch(tablet, tables[0], batch_id, files)

        run_tablet(before, workload, files=files, log_flush=flush)
        files.after_power_loss(after / "data", rng)
        for file in before.glob("catalog.sqlite*"):
            shutil.copy(file, after)
        outcome: list[int | None] = []

        async def recovery(
            tablet: StagedTablet, tables: list[int] = tables, outcome: list[int | None] = outcome
        ) -> None:
            outcome.append(await check(tablet, tables[0]))

        run_tablet(after, recovery, log_flush=flush)
        decided_rounds += outcome[0] is not None
        failed_rounds += files.power_is_off
        shutil.rmtree(before)
        shutil.rmtree(after)
    assert decided_rounds > 0
    assert failed_rounds > 0


async def check(tablet: StagedTablet, table: int) -> int | None:
    """Compare the logs with the decisions in the catalog, and check that the next batch can be committed."""
    found_last = tablet.last_batch_id(table)
    last = -1 if found_last is None else found_last
    if last >= 0:
        await tablet.apply(table, last)
    for round_number in range(2):
        wanted = Counter(
            row for batch_id in range(last + 1) for task in range(2) for ids in rows_of(batch_id, task) for row in ids
        )
        for bucket in range(BUCKETS):
            found = await tablet.rows(table, bucket)
            assert Counter(row for row in found if row != PLAIN_ROW) == wanted, f"decided up to batch {last}"
        if round_number == 0:
            last += 1
            await one_batch(tablet, table, last)
    await tablet.service.staging.cleaning.round()
    left = [file for file in tablet.staged_files() if decode_header(file.read_bytes()) is not None]
    assert [file.name for file in left if int(file.stem) <= last * 10 + 9] == [], "of a decided batch nothing stays"
    return found_last
