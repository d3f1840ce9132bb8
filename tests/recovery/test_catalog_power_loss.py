"""Power loss while tables change: the catalog, the records of tables and the mark never contradict each other.

What SQLite commits is on disk. Records and the mark are our own files: a power failure may leave older, newer or torn
ones, independently of each other, as `FaultyFiles` simulates it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import tempfile
from pathlib import Path

import pytest

from fluss.errors import FlussError
from fluss.server.catalog import CatalogStore
from fluss.server.catalog.drop_records import Dropped
from fluss.server.catalog.mark import MARK_FILE_NAME
from fluss.server.catalog.table_rows import table_record
from fluss.server.coordinator.tables.table_copies import TableCopies
from fluss.server.process.start_check import check_tables
from fluss.server.storage.directory.table_directories import (
    DATA_DIRECTORY_NAME,
    DROPPED_MARKER_NAME,
    ORPHANS_DIRECTORY_NAME,
    list_directories,
)
from fluss.server.storage.directory.table_record import RECORD_FILE_NAME, read_record
from fluss.server.storage.json_checksum import CHECKSUM_KEY, json_checksum
from fluss.server.tablet.buckets.dropped_files import dropped_directories
from tests.support.runner.lanes import rounds, seed
from tests.support.storage.catalog_files import path_of, plain_table
from tests.support.storage.faulty_files import FaultyFiles

CATALOG_NAMES = ("catalog.sqlite", "catalog.sqlite-wal")
STEPS = rounds(gate=15, all_lanes=60)


class Disk(FaultyFiles):
    """Builds a state after a power failure whenever one of our files gets its name, with the catalog of that moment.

    Files get their names by a rename, the markers of dropped tables by being created.
    """

    def __init__(self, data: Path, states: Path, rng: random.Random) -> None:
        super().__init__(data)
        self.states: list[Path] = []
        self.markers = 0
        self._data = data
        self._folder = states
        self._rng = rng

    def replace(self, source: str, target: str) -> None:
        super().replace(source, target)
        self._fail()

    def open_write(self, path: str) -> int:
        is_marker = path.endswith(f"/{DROPPED_MARKER_NAME}") and not Path(path).exists()
        descriptor = super().open_write(path)
        if is_marker:
            self.markers += 1
            self._fail()
        return descriptor

    def _fail(self) -> None:
        state = self._folder / str(len(self.states))
        self.after_power_loss(state, self._rng)
        self.power_is_off = False
        for name in CATALOG_NAMES:
            (state / name).write_bytes((self._data / name).read_bytes())
        self.states.append(state)


def change(store: CatalogStore, tables: dict[str, int], number: int, rng: random.Random) -> None:
    """One change of the metadata; some of them move no record."""
    name = rng.choice([*tables, ""])
    if not name or len(tables) < 3:
        tables[f"t{number}"] = store.create_table(path_of(f"t{number}"), plain_table(partitioned=True), 5)
        return
    kind = rng.randrange(5)
    if kind == 0:
        store.create_partitions(path_of(name), tables[name], [f"p{number}"])
    elif kind == 1:
        store.alter_table(path_of(name), tables[name], plain_table(partitioned=True), number)
    elif kind == 2:
        store.drop_table(path_of(name))
        del tables[name]
    elif kind == 3:
        store.producer_offsets.put("cursor", "{}", 10**12, number)
    else:
        store.allocate_writer_ids(number + 1)


def at_home(state: Path) -> None:
    """The mark of a directory that was not copied: it has its own inodes."""
    path = state / MARK_FILE_NAME
    try:
        node = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return  # none, or torn
    node["inodes"] = [path.stat().st_ino, state.stat().st_ino]
    del node[CHECKSUM_KEY]
    path.write_text(json.dumps({**node, CHECKSUM_KEY: json_checksum(node)}))


def check(state: Path) -> None:
    at_home(state)
    before = sorted(path for path in state.rglob("*") if path.parent != state)
    check_tables(state)
    assert not (state / ORPHANS_DIRECTORY_NAME).exists()
    assert sorted(path for path in state.rglob("*") if path.parent != state) == before


def check_dropped(state: Path) -> None:
    """The directories that would be removed are exactly the dropped and the marked ones."""
    copy = Path(tempfile.mkdtemp(dir=state.parent))
    for name in CATALOG_NAMES:
        shutil.copy(state / name, copy)
    with contextlib.closing(CatalogStore(copy / "catalog.sqlite")) as store:
        found = list_directories(state / DATA_DIRECTORY_NAME)
        dropped = store.drops.all()

        def exists(table_id: int) -> bool:
            return table_record(store.file.connection, table_id) is not None

        removed = dropped_directories(found, dropped, exists, lambda table_id, partition_id: True)
        assert removed == [item.path for item in found if item.table_id in dropped.tables]
        marked = [item for item in found if item.is_marked]
        assert not [item.path for item in marked if exists(item.table_id)], "nothing that is there is marked"
        nothing = Dropped(frozenset(), frozenset())
        # The same with a catalog that was lost: only the markers say it.
        alone = dropped_directories(found, nothing, lambda table_id: False, lambda table_id, partition_id: False)
        assert alone == [item.path for item in marked]


def test_power_loss_while_tables_change(tmp_path: Path) -> None:
    rng = random.Random(seed())
    data = tmp_path / "data"
    data.mkdir()
    store = CatalogStore(data / "catalog.sqlite")
    store.create_first_database("fluss", 1)
    (tmp_path / "states").mkdir()
    disk = Disk(data, tmp_path / "states", rng)
    copies = TableCopies(data, store, disk)
    copies.start()
    tables: dict[str, int] = {}
    for number in range(STEPS):
        change(store, tables, number, rng)
        if rng.random() < 0.3:
            asyncio.run(copies.sync())
    for name in tables:
        store.drop_table(path_of(name))
    store.close()
    assert len(disk.states) > STEPS // 2
    logs = [(state / "catalog.sqlite-wal").read_bytes() for state in disk.states]
    for state, log, later in zip(disk.states, logs, logs[1:], strict=False):
        check(state)
        check_dropped(state)
        # The power failed during the commits after it: none of them was answered.
        for _ in range(3 if later.startswith(log) and len(later) > len(log) else 0):
            (state / "catalog.sqlite-wal").write_bytes(later[: rng.randrange(len(log), len(later))])
            check(state)
    assert disk.markers > 2, "some drops were seen"


def test_a_record_that_is_ahead_is_refused(tmp_path: Path) -> None:
    """The control: a commit that was answered is missing."""
    rng = random.Random(seed())
    data = tmp_path / "data"
    data.mkdir()
    store = CatalogStore(data / "catalog.sqlite")
    store.create_first_database("fluss", 1)
    disk = Disk(data, tmp_path / "states", rng)
    (tmp_path / "states").mkdir()
    copies = TableCopies(data, store, disk)
    copies.start()
    store.create_table(path_of("a"), plain_table(), 5)
    log = (data / "catalog.sqlite-wal").read_bytes()
    store.create_table(path_of("b"), plain_table(), 5)
    asyncio.run(copies.sync())
    store.allocate_writer_ids(1)
    asyncio.run(copies.sync())
    state = disk.states[-1]
    store.close()
    (state / "catalog.sqlite-wal").write_bytes(log)
    with pytest.raises(FlussError, match="older than the tables in this directory"):
        check(state)


def test_directories_without_record_and_marker_are_moved_aside(tmp_path: Path) -> None:
    """As version 967b2f9 left them: neither the catalog nor the directory itself has any record of them."""
    store = CatalogStore(tmp_path / "catalog.sqlite")
    store.create_first_database("fluss", 1)
    TableCopies(tmp_path, store).start()
    ids = {name: store.create_table(path_of(name), plain_table(), 5) for name in ("known", "bare")}
    bare = tmp_path / "data" / "fluss" / f"bare-{ids['bare']}"
    (bare / "log-0").mkdir()
    (bare / "log-0" / f"{0:020d}.log").write_bytes(b"rows")
    (bare / RECORD_FILE_NAME).unlink()
    with store.file.transaction() as connection:
        connection.execute("DELETE FROM tables WHERE table_id = ?", (ids["bare"],))
    store.close()
    check_tables(tmp_path)
    aside = tmp_path / ORPHANS_DIRECTORY_NAME / "fluss" / bare.name
    assert (aside / "log-0" / f"{0:020d}.log").read_bytes() == b"rows"
    assert not bare.exists()
    assert read_record(tmp_path / "data" / "fluss" / f"known-{ids['known']}") is not None
