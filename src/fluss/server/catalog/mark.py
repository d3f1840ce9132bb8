"""`catalog.mark`: the progress of the catalog, recorded outside of it.

The coordinator writes it beside the catalog when counters have grown, once they are durable there. A catalog that is
behind its mark is an old one: a restored backup, or one without its write-ahead log. The mark also records where it was
written, by the inodes of its own file and of the data directory, which differ in a copy. In a copy of the whole
directory that was made while the server ran, the mark may have been copied after the catalog, so there it proves
nothing.

Besides the counters it has the databases, so that a repair without a copy of the catalog also knows those without
tables. They have no other use; beyond `DATABASES_LIMIT_CHARACTERS` they are left out, descriptors first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fluss.server.catalog.database_file import COMMITS_COUNTER
from fluss.server.storage.files import FileSystem, write_all
from fluss.server.storage.json_checksum import CHECKSUM_KEY, check_json, json_checksum

if TYPE_CHECKING:
    from fluss.model.json_types import JsonObject

MARK_FILE_NAME = "catalog.mark"
CATALOG_ID_COUNTER = "catalog_id"
# Counters that only grow, even when tables are dropped.
MARKED_COUNTERS = (
    COMMITS_COUNTER, "change", "table_id", "partition_id", "writer_id", "coordinator_epoch", "staged_work_id",
)  # fmt: skip
# The mark is written up to once a second, on the event loop that also serves requests.
DATABASES_LIMIT_CHARACTERS = 256 * 1024


@dataclass(frozen=True)
class CatalogMark:
    """The counters of a catalog, and whether they were recorded in this directory or in one that was copied to it."""

    catalog_id: int
    counters: Mapping[str, int]
    is_original: bool
    databases: Mapping[str, str | None] = field(default_factory=dict)
    """Descriptors by name, as in the catalog; None for one that was left out."""

    def ahead_of(self, counters: Mapping[str, int]) -> list[str]:
        """Return the names of the counters that are higher in this mark than in a catalog."""
        return [name for name, value in self.counters.items() if counters.get(name, 0) < value]


def read_mark(data_dir: Path) -> CatalogMark | None:
    """Return the mark of a data directory, or None if there is no readable one."""
    try:
        with (data_dir / MARK_FILE_NAME).open("rb") as file:
            inodes = [os.fstat(file.fileno()).st_ino, data_dir.stat().st_ino]
            node = json.loads(file.read())
        check_json(node)
        counters = {name: int(node["counters"][name]) for name in MARKED_COUNTERS if name in node["counters"]}
        databases = {str(name): text for name, text in node.get("databases", {}).items()}
        return CatalogMark(int(node["catalog_id"]), counters, node["inodes"] == inodes, databases)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def databases_for_mark(databases: Mapping[str, str]) -> dict[str, str | None]:
    """Return as many databases as a mark has room for, shortest first."""
    left = DATABASES_LIMIT_CHARACTERS
    names = []
    for name in sorted(databases, key=len):
        left -= len(name)
        if left < 0:
            break
        names.append(name)
    found: dict[str, str | None] = dict.fromkeys(names)
    for name in sorted(names, key=lambda name: len(databases[name])):
        left -= len(databases[name])
        if left < 0:
            break
        found[name] = databases[name]
    return found


def write_mark(
    data_dir: Path,
    catalog_id: int,
    counters: Mapping[str, int],
    files: FileSystem,
    databases: Mapping[str, str | None] | None = None,
) -> None:
    """Replace the mark. Blocks until it is on disk."""
    path, temporary = data_dir / MARK_FILE_NAME, data_dir / f"{MARK_FILE_NAME}.tmp"
    temporary.unlink(missing_ok=True)
    descriptor = files.open_write(str(temporary))
    try:
        node: JsonObject = {
            "catalog_id": catalog_id,
            "counters": {name: counters.get(name, 0) for name in MARKED_COUNTERS},
            "inodes": [os.fstat(descriptor).st_ino, data_dir.stat().st_ino],
            "databases": dict(databases or {}),
        }
        node[CHECKSUM_KEY] = json_checksum(node)
        write_all(files, descriptor, [json.dumps(node, indent=1).encode()], 0)
        files.fdatasync(descriptor)
    finally:
        files.close(descriptor)
    files.replace(str(temporary), str(path))
    files.sync_directory(str(data_dir))
