"""The snapshots that the coordinator knows: compaction registers its own there, and expiry keeps those in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fluss.lake.coordinator_calls import TieringCalls
from fluss.lake.tables.interface.format import RegisteredSnapshot
from fluss.model.paths import TableBucket, TablePath


class SnapshotRegistry(Protocol):
    """The snapshots of one table that the coordinator knows."""

    def prepare(self, offsets: Mapping[TableBucket, int]) -> str:
        """Have the coordinator write the offsets of a future snapshot to a file; return its address."""

    def register(self, snapshot_id: int, offsets_path: str, earliest_snapshot_id: int | None) -> None:
        """Make readers use this snapshot; snapshots older than the earliest one are forgotten."""

    def newest(self) -> int | None:
        """The snapshot that readers use now."""


class CoordinatorRegistry:
    """The registry of a table on a running server."""

    def __init__(self, calls: TieringCalls, table_id: int, path: TablePath) -> None:
        self._calls, self._table_id, self._path = calls, table_id, path

    def prepare(self, offsets: Mapping[TableBucket, int]) -> str:
        """Have the coordinator write the offsets of a future snapshot to a file; return its address."""
        return self._calls.prepare(self._table_id, self._path, offsets)

    def register(self, snapshot_id: int, offsets_path: str, earliest_snapshot_id: int | None) -> None:
        """Make readers use this snapshot; snapshots older than the earliest one are forgotten."""
        self._calls.commit(self._table_id, snapshot_id, offsets_path, earliest_snapshot_id=earliest_snapshot_id)

    def newest(self) -> int | None:
        """The snapshot that readers use now."""
        found = self.snapshot()
        return None if found is None else found.snapshot_id

    def snapshot(self) -> RegisteredSnapshot | None:
        """The registered snapshot of the table with this id; None before its first round."""
        found = self._calls.snapshot(self._path)
        if found is None or found[0] != self._table_id:
            return None
        return RegisteredSnapshot(self._table_id, found[1].snapshot_id, dict(found[1].table_buckets_offset.items()))
