"""Access to the lake of a table for clients: the snapshot that the coordinator knows, and the lake table itself.

Everything here blocks and must run in a thread other than the I/O thread. Catalogs are opened once per connection and
closed with it; lake tables are loaded again for every read, because each object is one state.
"""

from __future__ import annotations

import json
import threading
import weakref
from typing import TYPE_CHECKING

from fluss.client.engine.engine import Engine
from fluss.client.engine.table import TableAccess
from fluss.errors import ErrorCode, FlussError
from fluss.lazy_imports import import_lock
from fluss.values.basic import LakeSnapshot

if TYPE_CHECKING:
    from fluss.codec.filters.predicate import Predicate
    from fluss.lake.tables.interface.format import LakeFile, LakeFormat, LakeTable

_Catalogs = dict[tuple[tuple[str, str], ...], "LakeFormat"]

_catalogs: weakref.WeakKeyDictionary[object, _Catalogs] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def registered_snapshot(table: TableAccess) -> LakeSnapshot | None:
    """The newest snapshot that is registered with the coordinator; None before the first one."""
    try:
        snapshot = table.engine.run(table.engine.admin.get_lake_snapshot(table.path, None))
    except FlussError as error:
        if error.error_code == ErrorCode.LAKE_SNAPSHOT_NOT_EXIST:
            return None
        raise
    if any(bucket.table_id != table.table_id for bucket in snapshot.get_table_buckets()):
        raise FlussError(
            f"table {table.path} was dropped and created again since it was opened: open it again",
            ErrorCode.TABLE_NOT_EXIST,
        )
    return snapshot


def load_lake_table(table: TableAccess, registered: LakeSnapshot | None = None) -> LakeTable:
    """Load the current lake table. Code 40 if the packages are missing, or this machine cannot reach the catalog.

    `registered`, if it was requested before, helps if the lake alone does not show up to which offsets it has rows. The
    address of the lake is requested from the coordinator, because other answers about the table may lack it.
    """
    info = table.engine.run(table.engine.admin.get_table_info(table.path))
    catalog = _catalog(table.engine, info.properties)
    if registered is None:
        return catalog.load(table.path)
    with import_lock:
        from fluss.lake.tables.interface.format import RegisteredSnapshot

    known = RegisteredSnapshot(table.table_id, registered.snapshot_id, dict(registered.table_buckets_offset.items()))
    return catalog.load(table.path, known)


def snapshot_files(
    lake: LakeTable, table: TableAccess, snapshot: LakeSnapshot, condition: Predicate | None = None
) -> tuple[LakeSnapshot, list[LakeFile]]:
    """Return the files of a registered snapshot, or of a newer one with its offsets if it has expired.

    Another program may have rewritten the table and expired older snapshots without the coordinator. `lake`, loaded
    with the registered snapshot, has the offsets of its newest one. Code 53 if the lake has no such snapshot either.
    """
    try:
        return snapshot, lake.plan_files(snapshot.snapshot_id, table.schema, condition)
    except FlussError as error:
        newest = lake.last_commit(table.table_id)
        is_gone = error.error_code == ErrorCode.LAKE_SNAPSHOT_NOT_EXIST
        if not is_gone or newest is None or newest.snapshot_id == snapshot.snapshot_id:
            raise
    return (
        LakeSnapshot(newest.snapshot_id, newest.offsets),
        lake.plan_files(newest.snapshot_id, table.schema, condition),
    )


def _catalog(engine: Engine, properties: dict[str, str]) -> LakeFormat:
    with import_lock:
        from fluss.lake.tables.open_lake import lake_of, lake_properties_of

    lake_format, shown = lake_properties_of(properties)
    key = (("", lake_format), *sorted(shown.items()))
    catalogs = _catalogs_of(engine)
    known = catalogs.get(key)
    if known is not None:
        return known
    overrides = json.loads(engine.config.lake_properties)
    opened = lake_of(properties, overrides)  # outside the lock: a catalog that does not answer must not block others
    with _lock:
        kept = catalogs.setdefault(key, opened)
    if kept is not opened:  # another thread was faster
        opened.close()
    return kept


def _catalogs_of(engine: Engine) -> _Catalogs:
    with _lock:
        known = _catalogs.get(engine.connection_key)
        if known is not None:
            return known
        made = _catalogs[engine.connection_key] = {}

    async def close() -> None:
        with _lock:
            closing = list(made.values())
            made.clear()
        for catalog in closing:
            catalog.close()

    engine.add_close_hook(close)
    return made
