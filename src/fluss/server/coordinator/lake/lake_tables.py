"""Lake tables that follow Fluss tables: created before them, changed before them, never dropped.

The lake is changed first and Fluss second, both idempotently: a crash in between leaves a lake table, or a column of
it, that Fluss does not know, and a repeated request finds and uses it. Requests about one table wait for each other,
because their two halves must not interleave; requests about different tables do not.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping, Sequence

from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.interface.format import (
    OFFSETS_PATH_PROPERTY,
    LakeCommit,
    LakeFormat,
    LakeTableSpec,
    RegisteredSnapshot,
)
from fluss.lake.tables.interface.offsets import dump_offsets, load_offsets
from fluss.lake.tables.open_lake import open_lake
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import TablePath
from fluss.model.properties import DATALAKE_FORMAT, property_value
from fluss.model.schema import Column
from fluss.server.apis.environment import Environment
from fluss.server.catalog.lake_records import LakeSnapshotEntry
from fluss.server.config.lake_settings import lake_settings
from fluss.server.coordinator.lake.lake_threads import LakeThreads


class LakeTables:
    """Creates and changes the lake tables of one coordinator. Called on the event loop; threads do the work."""

    def __init__(self, environment: Environment, work: LakeThreads) -> None:
        self._environment = environment
        self._work = work
        self._locks: weakref.WeakValueDictionary[TablePath, asyncio.Lock] = weakref.WeakValueDictionary()
        self._opened: tuple[tuple[str, Mapping[str, str]], LakeFormat] | None = None

    def lock(self, path: TablePath) -> asyncio.Lock:
        """Return the lock to hold while changing the lake table of `path` and then the Fluss table."""
        lock = self._locks.get(path)
        if lock is None:
            lock = self._locks[path] = asyncio.Lock()
        return lock

    async def create(self, path: TablePath, descriptor: TableDescriptor) -> None:
        """Create the lake table of a new Fluss table. Code 54 if one exists that does not match or has rows."""
        lake_format, options = self._lake(descriptor)
        spec = LakeTableSpec(path, descriptor)
        await self._work.run(
            f"creating the lake table {path}", lambda: self._open(lake_format, options).create_table(spec)
        )

    async def enable(self, path: TablePath, table_id: int, descriptor: TableDescriptor) -> None:
        """Create the lake table of an existing Fluss table. If there is one, its rows must be from this Fluss table.

        The registered snapshots are replaced by the newest one in the lake, which may have advanced or been rolled back
        while the lake was disabled. If another program has rewritten the lake table, they state where the lake ends.
        """
        lake_format, options = self._lake(descriptor)
        spec = LakeTableSpec(path, descriptor)

        known = self._environment.catalog.store.lake.latest(table_id)
        registered = (
            None
            if known is None
            else RegisteredSnapshot(table_id, known.snapshot_id, load_offsets(known.tiered_offsets)[1])
        )

        def enable() -> LakeCommit | None:
            lake = self._open(lake_format, options)
            last = _last_commit(lake, path, table_id, registered)
            if last is not None:  # the lake was enabled before; the properties of the table may have changed since
                lake.change_properties(spec, spec)
            # Add the columns that the table got while its lake was disabled.
            lake.create_table(spec, must_be_empty=last is None, may_lack_columns=True)
            return last

        last = await self._work.run(f"creating the lake table {path}", enable)
        newest: LakeSnapshotEntry | None = None
        if last is not None:
            document = dump_offsets(table_id, last.offsets)
            file = last.properties.get(OFFSETS_PATH_PROPERTY, "")
            newest = LakeSnapshotEntry(
                last.snapshot_id, file, file or None, document, document, self._environment.clock()
            )
        self._environment.catalog.store.lake.reset(table_id, newest)

    async def add_columns(self, path: TablePath, descriptor: TableDescriptor, columns: Sequence[Column]) -> None:
        """Add columns to a lake table, before the Fluss table gets them."""
        lake_format, options = self._lake(descriptor)
        await self._work.run(
            f"adding columns to the lake table {path}",
            lambda: self._open(lake_format, options).add_columns(path, columns),
        )

    async def change_properties(self, path: TablePath, before: TableDescriptor, after: TableDescriptor) -> None:
        """Change the `iceberg.*` properties of a lake table, before those of the Fluss table are changed."""
        lake_format, options = self._lake(after)
        specs = (LakeTableSpec(path, before), LakeTableSpec(path, after))
        await self._work.run(
            f"changing properties of the lake table {path}",
            lambda: self._open(lake_format, options).change_properties(*specs),
        )

    def _lake(self, descriptor: TableDescriptor) -> tuple[str, Mapping[str, str]]:
        lake_format = property_value(descriptor.properties, DATALAKE_FORMAT)
        assert lake_format is not None, "table_rules ensures that a table with a lake has a format"
        settings = lake_settings(self._environment.config, self._environment.catalog.cluster_config)
        return lake_format, settings.catalog_options(lake_format)

    def _open(self, lake_format: str, options: Mapping[str, str]) -> LakeFormat:
        """Return the lake, reopened if its options have changed. Called in a worker thread."""
        wanted = (lake_format, options)
        opened = self._opened
        if opened is not None and opened[0] == wanted:
            return opened[1]
        # Another thread may still use the old lake, so the garbage collector closes it.
        lake = open_lake(lake_format, options, self._environment.config.data_dir)
        self._opened = (wanted, lake)
        return lake


def _last_commit(
    lake: LakeFormat, path: TablePath, table_id: int, registered: RegisteredSnapshot | None
) -> LakeCommit | None:
    """The newest snapshot of this table in the lake; None if it has none, or there is no lake table."""
    try:
        return lake.load(path, registered).last_commit(table_id)
    except FlussError as error:
        if error.error_code == ErrorCode.LAKE_SNAPSHOT_NOT_EXIST and registered is not None:
            return _last_commit(lake, path, table_id, None)  # the table was rolled back: its current snapshot counts
        if error.error_code != ErrorCode.TABLE_NOT_EXIST:
            raise
        return None
