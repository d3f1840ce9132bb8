"""`TableLookup`, `Lookuper` and `PrefixLookuper`, which look up rows of a primary-key table by key.

Everything here may be used by several event loops and threads at once; a lookuper is immutable. Requests are shared
by all lookupers of a connection, see `client.keys.lookup_queue`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from fluss.client.engine.engine import Engine
from fluss.client.engine.table import TableAccess
from fluss.client.keys.key_batches import look_up_many
from fluss.client.keys.lookup_keys import KeyReader, prefix_reader, primary_key_reader
from fluss.client.keys.lookup_queue import NO_PARTITION, LookupQueue
from fluss.client.keys.lookup_request import Ask
from fluss.client.keys.stored_values import RowReader, rows_of
from fluss.client.net.metadata import ClientTable
from fluss.client.net.session import Session
from fluss.errors import ErrorCode, FlussError
from fluss.lazy_imports import import_lock

if TYPE_CHECKING:
    from fluss.lake.reading.lookup_rows import LakeRows

_queues: weakref.WeakKeyDictionary[Session, dict[tuple[int, bool, bool], LookupQueue]] = weakref.WeakKeyDictionary()


def has_other_partitions(table: ClientTable) -> bool:
    """True if the lake of a table may have partitions that no longer exist in Fluss."""
    return table.has_lake and table.is_partitioned


def queue_of(session: Session, table: ClientTable, *, by_prefix: bool) -> LookupQueue:
    """The queue that all lookupers of a table share."""
    queues = _queues.setdefault(session, {})
    kind = (table.table_id, by_prefix, has_other_partitions(table))
    queue = queues.get(kind)
    if queue is None:
        made = LookupQueue(
            session.io,
            session.cluster,
            table.path,
            table.table_id,
            by_prefix=by_prefix,
            tells_partitions=has_other_partitions(table),
        )
        queue = queues.setdefault(kind, made)
    return queue


class _BaseLookuper:
    """The common part of lookups by key and by prefix."""

    def __init__(self, session: Session, table: ClientTable, keys: KeyReader, *, by_prefix: bool) -> None:
        session.check_open()
        self._session = session
        self._table = table
        self._keys = keys
        self._rows = RowReader(session, table)
        self._queue = queue_of(session, table, by_prefix=by_prefix)
        self._lake: LakeRows | None = None
        if has_other_partitions(table):
            with import_lock:
                from fluss.lake.reading.lookup_rows import LakeRows

            self._lake = LakeRows(TableAccess(Engine(session), table), keys)

    async def _value(self, key: Any) -> Any:
        """The stored bytes that the server has for a key; None if no row can have this key."""
        self._session.check_open()
        place, encoded = self._keys.one(key)
        if place is None:
            return None
        if self._queue.is_full:
            await self._queue.room()
        ask = Ask(place, (encoded,), asyncio.get_running_loop())
        self._queue.submit(ask)
        return (await ask.future)[0]

    async def _lake_rows(self, key: object) -> pa.RecordBatch:
        """The rows of a key whose partition is not in Fluss, as a record batch."""
        lake = self._lake
        assert lake is not None
        found = await asyncio.get_running_loop().run_in_executor(
            None, lambda: lake.find(self._keys.batch_of_rows([key]))
        )
        return found.rows

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._table.path)!r}, key={list(self._keys.names)})"


class Lookuper(_BaseLookuper):
    """Looks up rows by primary key. Many tasks may use one lookuper at the same time."""

    async def lookup(self, pk: Any) -> dict[str, Any] | None:
        """The row with this primary key as a dict, or None if there is no such row.

        `pk` is a dict by column name, a list or tuple in the order of the primary key (partition columns included), or
        the value itself when the key is one column.
        """
        value = await self._value(pk)
        if value is None:
            return None
        if value is NO_PARTITION:
            return next(iter(rows_of(await self._lake_rows(pk))), None)
        unknown = self._rows.unknown_schema(value)
        if unknown is not None:
            await self._rows.learn((unknown,))
        return self._rows.row(value)

    async def lookup_many(self, keys: Any, *, output: Literal["arrow", "rows"] | None = None) -> Any:
        """The rows of many keys, in the order of the keys.

        `keys` is a pyarrow Table or RecordBatch with the key columns, a pandas or polars DataFrame, or an iterable of
        keys as `lookup` takes them. The result is a list of dicts for an iterable and a pyarrow Table otherwise;
        `output` overrides that. A missing key gives None, or a row of nulls.
        """
        return await look_up_many(self._session, self._keys, self._rows, self._queue, self._lake, keys, output)


class PrefixLookuper(_BaseLookuper):
    """Looks up all rows whose primary key starts with a prefix of columns."""

    async def lookup(self, prefix: Any) -> list[dict[str, Any]]:
        """The rows with this prefix, in the order of their keys; `prefix` as in `Lookuper.lookup`."""
        values = await self._value(prefix)
        if values is NO_PARTITION:
            return rows_of(await self._lake_rows(prefix))
        if not values:
            return []
        unknown = self._rows.unknown_schemas(values)
        if unknown:
            await self._rows.learn(unknown)
        if len(values) == 1:
            return [self._rows.row(values[0])]
        return [row for row in self._rows.rows(values) if row is not None]

    async def lookup_arrow(self, prefixes: Iterable[object]) -> pa.Table:
        """The rows with any of these prefixes as a `pyarrow.Table`."""
        asked = list(prefixes)
        found = await asyncio.gather(*(self._value(prefix) for prefix in asked))
        elsewhere = [prefix for prefix, values in zip(asked, found, strict=True) if values is NO_PARTITION]
        values = [value for of_prefix in found if of_prefix is not NO_PARTITION for value in of_prefix or ()]
        unknown = self._rows.unknown_schemas(values)
        if unknown:
            await self._rows.learn(unknown)
        batches = [self._rows.batch(pa.array(values, pa.binary()))]
        batches += await asyncio.gather(*(self._lake_rows(prefix) for prefix in elsewhere))
        return pa.Table.from_batches(batches, self._rows.arrow_schema)


class TablePrefixLookup:
    """Builder for a `PrefixLookuper`."""

    def __init__(self, session: Session, table: ClientTable, column_names: Sequence[str]) -> None:
        if isinstance(column_names, str):
            raise FlussError(
                f"lookup_by takes a list of column names, got the string {column_names!r}; write [{column_names!r}]"
            )
        self._session = session
        self._table = table
        self._reader = prefix_reader(table, list(column_names), session.config.bucket_hash)

    def create_lookuper(self) -> PrefixLookuper:
        """A lookuper for rows whose primary key starts with the values of the chosen columns."""
        return PrefixLookuper(self._session, self._table, self._reader, by_prefix=True)

    def __repr__(self) -> str:
        return f"TablePrefixLookup({str(self._table.path)!r}, {list(self._reader.names)})"


class TableLookup(Lookuper):
    """Builder for lookupers, and a lookuper itself: `table.new_lookup().lookup(key)` works too."""

    def __init__(self, session: Session, table: ClientTable) -> None:
        if not table.has_primary_key:
            raise FlussError(
                f"table {table.path} has no primary key, which lookups require; read it with new_scan()",
                ErrorCode.CLIENT_ERROR,
            )
        keys = primary_key_reader(table, session.config.bucket_hash)
        super().__init__(session, table, keys, by_prefix=False)

    def create_lookuper(self) -> Lookuper:
        """A lookuper for single rows by their whole primary key."""
        return Lookuper(self._session, self._table, self._keys, by_prefix=False)

    def lookup_by(self, column_names: Sequence[str]) -> TablePrefixLookup:
        """Look up by the first columns of the key: the partition keys, if any, and the bucket keys, in that order.

        >>> lookuper = table.new_lookup().lookup_by(["device"]).create_lookuper()   # doctest: +SKIP
        """
        return TablePrefixLookup(self._session, self._table, column_names)
