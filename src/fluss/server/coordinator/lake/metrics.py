"""Metrics of tiering, named as in Apache Fluss."""

from __future__ import annotations

from dataclasses import dataclass

from fluss.model.paths import TablePath
from fluss.server.catalog.lake_records import LakeRecords
from fluss.server.coordinator.lake.tiering_states import TieringState, TieringStates


@dataclass(frozen=True)
class TieringMetrics:
    """Numbers of tables, and metrics of each table by name. Times are in milliseconds; unknown metrics are absent."""

    lakeTableCount: int  # noqa: N815 - names of the metrics
    pendingTablesCount: int  # noqa: N815
    runningTablesCount: int  # noqa: N815
    tables: dict[TablePath, dict[str, int]]


def tiering_metrics(states: TieringStates, records: LakeRecords, now_ms: int) -> TieringMetrics:
    """Return how many tables wait and are being tiered, and the lag, times and sizes of each table."""
    tables: dict[TablePath, dict[str, int]] = {}
    for table in states.tables.values():
        is_pending = table.state is TieringState.PENDING
        values = {
            "tierLag": now_ms - table.last_tiered_ms,
            "tieredTimestamp": records.newest_time(table.table_id),
            "tierDuration": table.duration_ms,
            "pendingTime": now_ms - table.since_ms if is_pending else 0,
            "failuresTotal": table.failures,
            "fileSize": table.file_size,
            "recordCount": table.record_count,
            "freshness": table.freshness_ms,
        }
        tables[table.path] = {name: value for name, value in values.items() if value is not None}
    return TieringMetrics(
        len(states.tables), states.count(TieringState.PENDING), states.count(TieringState.TIERING), tables
    )
