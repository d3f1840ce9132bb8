"""Bringing a snapshot back: from remote storage to a store that the changelog can continue.

The files are downloaded into a directory of their own, each checked against its size and checksum, then the note about
how far they contain the changelog is written into the database. Only the caller gives the directory its final name, so
a crash in between leaves nothing that looks like a store. A snapshot of which a file is missing or damaged is passed
over for the next older one: a broken copy must not keep a bucket from being served. Runs in the opening thread.
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
        """Put the newest usable snapshot into `directory`; False when there is none."""
        for snapshot in self._snapshots:
            if not first_offset <= snapshot.log_offset <= end_offset:
                continue
            try:
                self._restore(snapshot, directory)
            except Exception as error:  # Whatever is wrong with this copy: another one may be good.
                remove(directory)
                logger.warning("snapshot %d of %s cannot be used: %s", snapshot.snapshot_id, directory, error)
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
                raise OSError(f"{file.path} has other content than was uploaded")
        row_count = UNKNOWN_ROW_COUNT if snapshot.row_count is None else snapshot.row_count
        store = KvStore.open(directory, self._resources)
        try:
            store.write({}, Applied(snapshot.log_offset, row_count))
        finally:
            store.close()
