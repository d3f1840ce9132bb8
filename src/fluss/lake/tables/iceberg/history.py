"""The history of a table's snapshots, and the expiry of old ones."""

from __future__ import annotations

from collections.abc import Collection

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotsUpdate

from fluss.errors import FlussError
from fluss.lake.tables.iceberg.catalog import catalog_errors
from fluss.lake.tables.iceberg.last_round import properties_of
from fluss.lake.tables.iceberg.orphans import files_of_snapshots
from fluss.lake.tables.interface.format import SnapshotEntry


def history(table: Table) -> list[SnapshotEntry]:
    """The history of a table: the newest snapshot, its parent, and so on."""
    entries: list[SnapshotEntry] = []
    superseded_ms: int | None = None
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        is_named = snapshot.snapshot_id in named
        entries.append(
            SnapshotEntry(snapshot.snapshot_id, snapshot.timestamp_ms, superseded_ms, is_named, properties_of(snapshot))
        )
        superseded_ms = snapshot.timestamp_ms
    return entries


def expire_snapshots(table: Table, snapshot_ids: Collection[int]) -> list[str]:
    """Remove snapshots from the history; return the files that no snapshot needs any more.

    Fails with code 50 if there was a commit since the table was loaded: the decision was about another history. The
    files still exist afterwards. If the process dies before removing them, `unreferenced_files` finds them.
    """
    wanted = set(snapshot_ids)
    if not wanted:
        return []
    named = {ref.snapshot_id for ref in table.metadata.refs.values()} & wanted
    if named:
        raise FlussError(
            f"snapshot {min(named)} of lake table {_shown(table)} has a name (branch or tag): remove the name first"
        )
    leaving = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id in wanted]
    with catalog_errors(f"expiring snapshots of lake table {_shown(table)}"):
        needed_before = set(files_of_snapshots(table, leaving))
        transaction = table.transaction()
        current = table.metadata.current_snapshot_id
        transaction._apply(
            (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(wanted)}),),
            (AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": current}),),
        )
        transaction.commit_transaction()
        still_needed = set(files_of_snapshots(table, table.metadata.snapshots))
    return sorted(path for path in needed_before - still_needed if "://" in path or path.startswith("/"))


def _shown(table: Table) -> str:
    return ".".join(table.name())
