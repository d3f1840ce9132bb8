"""Lake tables with many rounds behind them, and a clock that can be turned, for tests of maintenance."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from fluss.lake.maintenance import service
from fluss.lake.maintenance.options import DAY_MS
from fluss.lake.maintenance.service import TableMaintenance
from fluss.lake.maintenance.task_runners import TaskRunner
from fluss.lake.tables.iceberg.tables import IcebergFormat
from fluss.model.paths import TableBucket
from tests.support.lake.tables import PEOPLE, TABLE_ID, LakeTableWriter, made, people, spec_of

ROUNDS = 6
ROWS_PER_ROUND = 3


def turn_clock(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """For jobs that open the table by themselves: from now on the clock of maintenance is ahead, and no other."""
    clock = SimpleNamespace(time=lambda: time.time() + days * DAY_MS / 1000)
    monkeypatch.setattr(service, "time", clock)


class Registry:
    """What a coordinator remembers, in memory: for tests that have no server."""

    def __init__(self) -> None:
        self.prepared: list[Mapping[TableBucket, int]] = []
        self.registered: list[int] = []

    def prepare(self, offsets: Mapping[TableBucket, int]) -> str:
        self.prepared.append(dict(offsets))
        return f"remote/{len(self.prepared)}.offsets"

    def register(self, snapshot_id: int, offsets_path: str, earliest_snapshot_id: int | None) -> None:
        assert offsets_path == f"remote/{len(self.prepared)}.offsets"
        assert earliest_snapshot_id is not None
        self.registered.append(snapshot_id)

    def newest(self) -> int | None:
        return self.registered[-1] if self.registered else None


def maintenance_of(
    table_writer: LakeTableWriter,
    days_later: float = 0,
    registry: Registry | None = None,
    runner: TaskRunner | None = None,
    **options: Any,
) -> TableMaintenance:
    """The jobs on the table of a tiering service, at a later time."""

    def clock_ms() -> int:
        return int(time.time() * 1000 + days_later * DAY_MS)

    made_options = TableMaintenance(table_writer.table.refreshed(), TABLE_ID).options
    chosen = type(made_options)(**{**vars(made_options), **options})
    return TableMaintenance(
        table_writer.table.refreshed(), TABLE_ID, runner=runner, registry=registry, options=chosen, clock_ms=clock_ms
    )


def log_table(
    lake: IcebergFormat, rounds: int = ROUNDS, buckets: int = 2
) -> tuple[LakeTableWriter, list[dict[str, Any]]]:
    """A log table after some small rounds, and its rows."""
    table_writer = made(lake, spec_of(PEOPLE))
    rows: list[dict[str, Any]] = []
    for number in range(rounds):
        messages = []
        for bucket in range(buckets):
            batch = people(len(rows), ROWS_PER_ROUND)
            rows += batch
            messages.append(table_writer.write(batch, start=number * ROWS_PER_ROUND, bucket=bucket))
        table_writer.commit(*messages)
    return table_writer, rows


def keyed_table(lake: IcebergFormat, rounds: int = ROUNDS) -> tuple[LakeTableWriter, list[dict[str, Any]]]:
    """A primary-key table of one bucket: each round updates one row of the first file by a position delete."""
    table_writer = made(lake, spec_of(PEOPLE, primary_key=["id"]))
    table_writer.commit(table_writer.write(people(0, 20)))
    first = table_writer.table.plan_files()[0].path
    for number in range(rounds):
        (file,) = [each for each in table_writer.table.plan_files() if each.path == first]
        message = table_writer.write(people(number, 1, name="new"), start=20 + number)
        table_writer.commit(table_writer.table.target().delete_rows(message, {file: pa.array([number])}))
    return table_writer, [*people(0, rounds, name="new"), *people(rounds, 20 - rounds)]
