"""Restoring a snapshot from remote storage to a store, to which the changelog after it can be applied.

The files are downloaded into a directory of their own, and each is checked against its size and checksum. Then the
`Applied` note, with the changelog offset of the files, is written into the database. The caller renames the directory
afterwards, so a crash in between leaves nothing that looks like a store. If a file of a snapshot is missing or damaged,
the next older snapshot is tried: a broken copy must not prevent a bucket from being served. Runs in the opening thread.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from fluss.server.storage.kv.limits import KvResources
from fluss.server.storage.kv.store import UNKNOWN_ROW_COUNT, Applied, KvStore, remove
from fluss.server.storage.kv_snapshot import CompletedSnapshot
from fluss.server.storage.remote_store import RemoteStore

logger = logging.getLogger(__name__)


class SnapshotRestorer:
    """Restores one of the snapshots of a bucket, given newest first."""

    def __init__(self, snapshots: Sequence[CompletedSnapshot], store: RemoteStore, resources: KvResources) -> None:
        self._snapshots = snapshots
        self._store = store
        self._resources = resources

    def __call__(self, directory: Path, first_offset: int, end_offset: int) -> bool:
        """Restore the newest usable snapshot into `directory`; False if there is none."""
        for snapshot in self._snapshots:
            if not first_offset <= snapshot.log_offset <= end_offset:
                continue
            try:
                self._restore(snapshot, directory)
            except Exception as error:  # any error: an older snapshot may be good
                remove(directory)
                logger.warning("cannot restore snapshot %d to %s: %s", snapshot.snapshot_id, directory, error)
            else:
                logger.info(
                    "%s: restored snapshot %d, which contains the changelog up to offset %d",
                    directory, snapshot.snapshot_id, snapshot.log_offset,
                )  # fmt: skip
                return True
        return False

    def _restore(self, snapshot: CompletedSnapshot, directory: Path) -> None:
        directory.mkdir(parents=True)
        for file in snapshot.files:
            size, checksum = self._store.download(file.path, directory / file.local_name)
            if size != file.size_bytes or file.checksum not in (None, checksum):
                raise OSError(f"{file.path} differs from the uploaded file: wrong size or checksum")
        row_count = UNKNOWN_ROW_COUNT if snapshot.row_count is None else snapshot.row_count
        store = KvStore.open(directory, self._resources)
        try:
            store.write({}, Applied(snapshot.log_offset, row_count))
        finally:
            store.close()
