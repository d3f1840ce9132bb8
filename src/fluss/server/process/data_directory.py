"""The data directory as a whole: its lock, its format, and the ports of the last run.

The lock is an advisory ``flock`` on ``DIR/LOCK``. It belongs to the open file, which forked children share, so it is
held until the supervisor *and* every child are gone: after a supervisor was killed, no new server can start while an
old tablet still writes. Nothing needs to be cleaned up after a dead owner; the content of the file (the owner's process
id) is only for messages. Called by the supervisor before it forks, or by the embedding program's thread.

The directory has rows and permissions, so other users of the machine are kept out: a new directory has mode 0700, and
files have 0600. The mode of an existing directory is not changed; the server only logs a warning if others can read it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import stat
import time
from pathlib import Path
from typing import Any

from fluss.errors import ErrorCode, FlussError
from fluss.model.formats import refuse_newer
from fluss.server.catalog.database_file import (
    CATALOG_FILE_NAME,
    FORMAT_VERSION,
    LATER_TABLE_NAMES,
    stored_format_version,
)
from fluss.server.catalog.safety_copies import copy_before_upgrade
from fluss.server.config.server_config import ServerConfig
from fluss.server.process.start_check import check_tables
from fluss.server.storage.directory.disk_reserve import make_room_for_opening
from fluss.server.storage.files import FileSystem

logger = logging.getLogger(__name__)

LOCK_FILE_NAME = "LOCK"
PORTS_FILE_NAME = "ports.json"

# How long to wait for the children of a dead supervisor; they notice within milliseconds.
ORPHANS_WAIT_SECONDS = 10.0
ORPHANS_POLL_SECONDS = 0.02


class DataDirectory:
    """An existing, locked data directory. `close` unlocks it; the object must not be used afterwards."""

    def __init__(self, path: Path, *, for_repair: bool = False) -> None:
        """Create and lock the directory, and check that it can be served; a repair only checks the format."""
        self.path = path
        self._locks = _open_locked(path)
        try:
            make_room_for_opening(path)
            self._check_format()
            if for_repair:
                return
            check_tables(path)
            copy_before_upgrade(path, LATER_TABLE_NAMES, FORMAT_VERSION)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock of this process. Repeated calls do nothing."""
        while self._locks:
            os.close(self._locks.pop())

    def _check_format(self) -> None:
        """Refuse a newer format, before anything is read or changed. An unreadable catalog fails when it is opened."""
        refuse_newer(
            f"data directory {self.path}",
            stored_format_version(self.path / CATALOG_FILE_NAME),
            FORMAT_VERSION,
            ErrorCode.INVALID_CONFIG_EXCEPTION,
        )

    def read_ports(self) -> dict[str, dict[str, int]]:
        """Return the ports of the last run, role name -> listener name -> port; empty if missing or damaged."""
        try:
            document: Any = json.loads((self.path / PORTS_FILE_NAME).read_bytes())
            return {
                str(role): {str(name): int(port) for name, port in listeners.items() if 0 < int(port) < 65536}
                for role, listeners in document.items()
            }
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def write_ports(self, ports: dict[str, dict[str, int]]) -> None:
        """Store the ports of this run. A crash leaves the old or the new file; without one, the next run has others."""
        if self.read_ports() == ports:
            return
        new = self.path / f"{PORTS_FILE_NAME}.new"
        try:
            new.write_text(json.dumps(ports, indent=1, sort_keys=True) + "\n")
            new.replace(self.path / PORTS_FILE_NAME)
        except OSError as error:
            logger.warning("cannot store the ports for the next start: %s", error)


def keep_files_private(config: ServerConfig) -> None:
    """Make new files of this process, including those of libraries, accessible to its own user only.

    Does nothing if clients that may run as other users read some of the files: in a local `remote.data.dir` or
    warehouse outside of the data directory.
    """
    places = [config.remote_data_dir, *config.values_with_prefix("datalake.").values()]
    local = [place.removeprefix("file:") for place in places if place.startswith(("/", "file:"))]
    if all(Path(place).is_relative_to(config.data_dir) for place in local):
        os.umask(0o077)


def _open_locked(path: Path) -> list[int]:
    """Return descriptors of the lock file and the directory, both locked, because the file may be deleted."""
    locks: list[int] = []
    try:
        _make_durably(path)
        if path.stat().st_mode & 0o077:
            logger.warning("other users can read data directory %s; chmod 700 keeps them out", path)
        locks.append(os.open(path / LOCK_FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        locks.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        raise FlussError(
            f"cannot use data directory {path}: {error.strerror or error}; choose another directory",
            ErrorCode.INVALID_CONFIG_EXCEPTION,
        ) from error
    deadline = time.monotonic() + ORPHANS_WAIT_SECONDS
    while not all(map(_try_lock, locks)):
        owner = os.pread(locks[0], 32, 0).decode("ascii", "replace").strip()
        if _is_alive(owner) or time.monotonic() > deadline:
            for descriptor in locks:
                os.close(descriptor)
            raise FlussError(
                f"data directory {path} is in use by another server (process {owner or 'unknown'}); "
                "stop that server or choose another directory",
                ErrorCode.INVALID_CONFIG_EXCEPTION,
            )
        time.sleep(ORPHANS_POLL_SECONDS)
    with contextlib.suppress(OSError):  # The disk is full: the lock works without its content.
        os.ftruncate(locks[0], 0)
        os.pwrite(locks[0], f"{os.getpid()}\n".encode(), 0)
    return locks


def _make_durably(path: Path) -> None:
    """Create a directory and its parents, and sync them: a power loss could remove the directory otherwise.

    The parent of an existing directory is synced too, if this user may open it: the directory may have just been made.
    """
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in missing:
        FileSystem().sync_directory(str(each.parent))
    if not missing:
        with contextlib.suppress(OSError):
            FileSystem().sync_directory(str(path.absolute().parent))


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise
        logger.debug("cannot lock directories here, using only the lock file: %s", error)  # NFS
    return True


def _is_alive(owner: str) -> bool:
    """True if the process that wrote the lock file still runs, or another process has its id now."""
    if not owner.isdigit():
        return False
    try:
        os.kill(int(owner), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
