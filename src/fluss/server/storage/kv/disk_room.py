"""The part of the disk that key-value stores leave free, as appends to logs do (`RESERVED_FREE_BYTES`).

RocksDB decides by itself when to write files, so the limit has to be enforced beforehand, for the rows that it holds in
memory and for the space that compaction needs. A put is accepted only if there is room for all rows in memory, those of
other buckets included, besides the reserve. Compaction, which rewrites files before it removes the old ones, is
switched off while there is no room for a second copy of the store. Files then pile up until puts are refused with
back-pressure; both end by themselves when there is room again. Owned by the loop thread.
"""

from __future__ import annotations

import logging

from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.files import FileSystem
from fluss.server.storage.kv.limits import KvResources
from fluss.server.storage.kv.store import KvStore

_logger = logging.getLogger(__name__)


class DiskRoom:
    """Checks that the disk has room for the rows of one store. Without a reserve (0 bytes) nothing is checked."""

    def __init__(
        self, files: FileSystem, directory: str, reserved_free_bytes: int, store: KvStore, resources: KvResources
    ) -> None:
        self._files = files
        self._directory = directory
        self._reserved_free_bytes = reserved_free_bytes
        self._store = store
        self._resources = resources

    def _left_bytes(self, more_bytes: int) -> int:
        """The bytes that stay free, besides the reserve, once everything in memory and `more_bytes` are written."""
        unwritten = self._resources.write_buffers.get_usage() + more_bytes
        return self._files.free_bytes(self._directory) - unwritten - self._reserved_free_bytes

    def check_put(self, pending_bytes: int) -> None:
        """Raise FlussError 70 if the disk may have no room for the pending rows and those in memory."""
        if self._reserved_free_bytes and self._left_bytes(pending_bytes) < 0:
            free = self._files.free_bytes(self._directory)
            refusal = FlussError(
                f"no space left on the disk of {self._directory}: {free} bytes are free, of which "
                f"{self._reserved_free_bytes} are reserved for metadata and the others for rows in memory. Nothing was "
                "written; free some space (drop tables, enlarge the disk) and writes continue by themselves. Reads "
                "work meanwhile",
                ErrorCode.DISK_WRITE_LOCKED,
            )
            _logger.warning("%s", refusal.message)
            raise refusal

    def steer_compaction(self) -> None:
        """Let the store compact only if there is room for a second copy of its files."""
        if self._reserved_free_bytes:
            self._store.allow_compaction(self._left_bytes(self._store.file_bytes) >= 0)
