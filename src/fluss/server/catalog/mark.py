"""`catalog.mark`: how far the catalog is known to be, outside of it.

The coordinator writes it beside the catalog when counters have grown, after they are durable there. A catalog that is
behind its mark is an old one: yesterday's, or one without its write-ahead log. The mark also says where it was written,
by the inodes of its own file and of the data directory, which a copy does not keep. In a copy of the whole directory
that was made while the server ran, the mark may have been copied after the catalog, so there it proves nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluss.server.catalog.database_file import COMMITS_COUNTER
from fluss.server.storage.files import FileSystem, write_all
from fluss.server.storage.json_checksum import CHECKSUM_KEY, check_json, json_checksum

MARK_FILE_NAME = "catalog.mark"
CATALOG_ID_COUNTER = "catalog_id"
# Counters that only grow, whatever is dropped.
MARKED_COUNTERS = (
    COMMITS_COUNTER, "change", "table_id", "partition_id", "writer_id", "coordinator_epoch", "staged_work_id",
)  # fmt: skip


@dataclass(frozen=True)
class CatalogMark:
    """Counters of a catalog, and whether they were noted in this very directory."""

    catalog_id: int
    counters: Mapping[str, int]
    is_original: bool

    def ahead_of(self, counters: Mapping[str, int]) -> list[str]:
        """Names of the counters that a catalog has not reached."""
        return [name for name, value in self.counters.items() if counters.get(name, 0) < value]


def read_mark(data_dir: Path) -> CatalogMark | None:
    """The mark of a data directory; None when there is none that can be read."""
    try:
        with (data_dir / MARK_FILE_NAME).open("rb") as file:
            inodes = [os.fstat(file.fileno()).st_ino, data_dir.stat().st_ino]
            node = json.loads(file.read())
        check_json(node)
        counters = {name: int(node["counters"][name]) for name in MARKED_COUNTERS if name in node["counters"]}
        return CatalogMark(int(node["catalog_id"]), counters, node["inodes"] == inodes)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_mark(data_dir: Path, catalog_id: int, counters: Mapping[str, int], files: FileSystem) -> None:
    """Replace the mark; blocks until it is on disk."""
    path, temporary = data_dir / MARK_FILE_NAME, data_dir / f"{MARK_FILE_NAME}.tmp"
    temporary.unlink(missing_ok=True)
    descriptor = files.open_write(str(temporary))
    try:
        node: dict[str, Any] = {
            "catalog_id": catalog_id,
            "counters": {name: counters.get(name, 0) for name in MARKED_COUNTERS},
            "inodes": [os.fstat(descriptor).st_ino, data_dir.stat().st_ino],
        }
        node[CHECKSUM_KEY] = json_checksum(node)
        write_all(files, descriptor, [json.dumps(node, indent=1).encode()], 0)
        files.fdatasync(descriptor)
    finally:
        files.close(descriptor)
    files.replace(str(temporary), str(path))
    files.sync_directory(str(data_dir))
