"""Primary-key tables for tests of lookups and reads: made, filled through the public writer, in plain calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

import fluss

USERS = pa.schema([("id", pa.int32()), ("name", pa.string()), ("score", pa.float64())])
T = TypeVar("T")


def user(number: int, name: str | None = None) -> dict[str, Any]:
    """A row of the schema `USERS`."""
    return {"id": number, "name": name or f"name {number}", "score": number / 2}


class KvTable:
    """A primary-key table of a test."""

    def __init__(
        self,
        connection: fluss.FlussConnection,
        name: str,
        schema: Any = USERS,
        primary_keys: Sequence[str] = ("id",),
        **descriptor: Any,
    ) -> None:
        self.connection = connection
        self.admin = connection.get_admin()
        self.path = fluss.TablePath("fluss", name)
        described = fluss.TableDescriptor(fluss.Schema(schema, list(primary_keys)), **descriptor)
        self.run(lambda: self.admin.create_table(self.path, described))
        self.reopen()

    @classmethod
    def existing(cls, connection: fluss.FlussConnection, name: str) -> KvTable:
        """A table that is there already."""
        table = cls.__new__(cls)
        table.connection, table.admin = connection, connection.get_admin()
        table.path = fluss.TablePath("fluss", name)
        table.reopen()
        return table

    def run(self, body: Callable[[], Awaitable[T]]) -> T:
        """Await something in an event loop of its own."""

        async def awaited() -> T:
            return await body()

        return asyncio.run(awaited())

    def reopen(self) -> None:
        """Open the table again, e.g. after it was altered."""
        self.table = self.run(lambda: self.connection.get_table(self.path))

    def write(self, rows: Sequence[dict[str, Any]], deleted: Sequence[dict[str, Any]] = ()) -> None:
        """Upsert rows, then delete others; returns when all is acknowledged."""

        async def body() -> None:
            writer = self.table.new_upsert().create_writer()
            for row in rows:
                writer.upsert(row)
            for key in deleted:
                writer.delete(key)
            await writer.flush()

        asyncio.run(body())

    def look_up(self, *keys: Any) -> list[dict[str, Any] | None]:
        """Rows by key, one after the other, on one lookuper."""

        async def body() -> list[dict[str, Any] | None]:
            lookuper = self.table.new_lookup().create_lookuper()
            return [await lookuper.lookup(key) for key in keys]

        return asyncio.run(body())

    def look_up_many(self, keys: Any, **options: Any) -> Any:
        """Rows by key, all at once."""
        return self.run(lambda: self.table.new_lookup().lookup_many(keys, **options))

    def rows(self, columns: Sequence[str] | None = None, **options: Any) -> list[dict[str, Any]]:
        """The current rows, sorted by the first column."""
        found = self.run(lambda: self.table.to_arrow(columns, **options))
        return sorted(found.to_pylist(), key=lambda row: next(iter(row.values())))
