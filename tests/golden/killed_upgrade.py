"""`python -m tests.golden.killed_upgrade DIRECTORY NUMBER`: an upgrade that dies right before a statement of SQLite.

A process of its own, not a fork: in the child of a process with threads a lock of SQLite may be held for ever.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

from fluss.server.catalog import CatalogStore
from fluss.server.process.data_directory import DataDirectory


def upgrade(data: Path) -> None:
    """What a start does with the catalog."""
    directory = DataDirectory(data)
    CatalogStore(data / "catalog.sqlite").close()
    directory.close()


def main(data: Path, statement: int) -> None:
    """Upgrade, and count."""
    connect, seen = sqlite3.connect, 0

    def look(_: str) -> None:
        nonlocal seen
        seen += 1
        if seen > statement:
            os.kill(os.getpid(), signal.SIGKILL)

    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(look)
        return connection

    sqlite3.connect = connected  # type: ignore[assignment]
    upgrade(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
