"""The offsets files of lake snapshots, in remote storage: `lake/<database>/<table>-<id>/metadata/<uuid>.offsets`.

A tiering service names them in the snapshots that it commits to the lake, so they have the same locations as in Apache
Fluss. The catalog has the same documents; readers and tablets do not use the files. Files of rounds that were prepared
and never registered are kept for `UNUSED_FILE_AGE_MS`: a service that died may have committed to the lake, and then the
next one registers that snapshot with this file. Files to remove are known by name: the store is never searched for
files that are missing from the catalog, because the catalog may be older than they are.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection
from typing import TypeVar

from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.interface.offsets import load_offsets
from fluss.server.catalog import TableEntry
from fluss.server.coordinator.lake.lake_threads import LakeThreads
from fluss.server.storage.remote_store import RemoteStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

OFFSETS_SUFFIX = ".offsets"
UNUSED_FILE_AGE_MS = 7 * 24 * 3600 * 1000


class OffsetsFiles:
    """Writes, reads and removes offsets files. Called on the event loop; threads do the work."""

    def __init__(self, store: RemoteStore, work: LakeThreads) -> None:
        self._store = store
        self._work = work

    def directory(self, entry: TableEntry) -> str:
        """Return the directory of a table's offsets files in remote storage."""
        path = entry.path
        return f"{self._store.root}/lake/{path.database_name}/{path.table_name}-{entry.table_id}/metadata"

    def new_name(self, entry: TableEntry) -> str:
        """Return a new address for an offsets file of a table."""
        return f"{self.directory(entry)}/{uuid.uuid4()}{OFFSETS_SUFFIX}"

    async def check_store(self) -> None:
        """Log a warning now if remote storage is unusable; otherwise the first upload, hours later, would show it."""
        try:
            await self._work.run(f"opening remote.data.dir {self._store.root}", self._store.check_reachable)
        except (OSError, FlussError) as error:
            logger.warning(
                "cannot use remote.data.dir %s: %s. Rows stay on the local disk until this works; check its "
                "address and keys (s3.endpoint, s3.access-key, ...)",
                self._store.root,
                error,
            )

    async def run(self, doing: str, work: Callable[[], T]) -> T:
        """Run `work`, which may use remote files, in a thread; errors say what it was `doing`."""
        return await self._work.run(doing, work)

    async def write(self, name: str, document: str) -> None:
        """Write a new offsets file; it is durable when this returns."""
        await self._work.run(f"writing the offsets file {name}", lambda: self._store.write(name, document.encode()))

    async def read(self, entry: TableEntry, path: str) -> str:
        """Return the document of a file. It must belong to this table, because registered files get deleted."""
        directory = self.directory(entry)
        if not path.startswith(f"{directory}/") or ".." in path:
            raise _unusable(f"{path!r} is not an offsets file of table {entry.path}, whose files are in {directory}")
        try:
            content = await self._work.run(f"reading the offsets file {path}", lambda: self._store.read(path))
            table_id, _ = load_offsets(content)
        except FileNotFoundError:
            raise _unusable(f"offsets file {path} does not exist") from None
        except OSError as error:
            raise FlussError(
                f"cannot read offsets file {path}: {error}; check remote.data.dir", ErrorCode.STORAGE_EXCEPTION
            ) from error
        except FlussError as error:
            if error.error_code != ErrorCode.CORRUPT_MESSAGE:
                raise
            raise _unusable(f"offsets file {path}: {error.message}") from None
        if table_id != entry.table_id:
            raise _unusable(f"offsets file {path} is for table id {table_id}, not {entry.table_id}")
        return content.decode()

    async def remove_unused(self, entry: TableEntry, unused: Collection[str]) -> bool:
        """Remove files of removed snapshots, and old unregistered ones; False if some could not be removed."""
        directory = self.directory(entry)

        def remove() -> None:
            for path in unused:
                if path.startswith(f"{directory}/"):
                    self._store.delete(path)

        return await self._remove(entry, remove)

    async def remove_all(self, entry: TableEntry) -> None:
        """Remove all offsets files of a dropped table."""
        directory = self.directory(entry).rpartition("/")[0]

        def remove() -> None:
            self._store.delete_directory(directory)
            self._store.remove_empty_parents(directory)

        await self._remove(entry, remove)

    async def _remove(self, entry: TableEntry, remove: Callable[[], None]) -> bool:
        try:
            await self._work.run(f"removing offsets files of table {entry.path}", remove)
        except (FlussError, OSError) as error:
            logger.warning("cannot remove unused offsets files of table %s: %s", entry.path, error)
            return False
        return True


def _unusable(reason: str) -> FlussError:
    return FlussError(f"{reason}; prepare the snapshot again", ErrorCode.UNKNOWN_SERVER_ERROR)
