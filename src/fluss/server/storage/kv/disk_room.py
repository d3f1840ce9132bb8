"""The part of the disk that the key-value stores leave alone, like appends to logs do (`RESERVED_FREE_BYTES`).

RocksDB writes files when it wants to, so it has to be kept from it beforehand: what it holds in memory and will write,
and what it needs while it compacts. A put is accepted only if there is room for all rows in memory, those of other
buckets included, besides the reserve. Compaction, which writes files anew before it removes the old ones, is
switched off while the disk could not take the store a second time; then files pile up until puts are refused with
back-pressure, and both end by themselves when there is room again. Of the loop thread.
"""

from __future__ import annotations

import logging

from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.files import FileSystem
from fluss.server.storage.kv.limits import KvResources
from fluss.server.storage.kv.store import KvStore

_logger = logging.getLogger(__name__)


class DiskRoom:
    """Of one store. Without a reserve nothing is asked."""

    def __init__(
        self, files: FileSystem, directory: str, reserved_free_bytes: int, store: KvStore, resources: KvResources
    ) -> None:
        self._files = files
        self._directory = directory
        self._reserved_free_bytes = reserved_free_bytes
        self._store = store
        self._resources = resources

    def _left_bytes(self, more_bytes: int) -> int:
        """What would be left besides the reserve after everything in memory and `more_bytes` were written."""
        unwritten = self._resources.write_buffers.get_usage() + more_bytes
        return self._files.free_bytes(self._directory) - unwritten - self._reserved_free_bytes

    def check_put(self, pending_bytes: int) -> None:
        """FlussError 70 when the rows that wait and those in memory might not find room."""
        if self._reserved_free_bytes and self._left_bytes(pending_bytes) < 0:
            free = self._files.free_bytes(self._directory)
            refusal = FlussError(
                f"no space left on the disk of {self._directory}: {free} bytes free, {self._reserved_free_bytes} of "
                "them kept for metadata, the others for rows that are in memory. Nothing was written; make room (drop "
                "tables, enlarge the disk) and writing goes on by itself, reading works meanwhile",
                ErrorCode.DISK_WRITE_LOCKED,
            )
            _logger.warning("%s", refusal.message)
            raise refusal

    def steer_compaction(self) -> None:
        """Let the store compact only if there is room for its files once more."""
        if self._reserved_free_bytes:
            self._store.allow_compaction(self._left_bytes(self._store.file_bytes) >= 0)
