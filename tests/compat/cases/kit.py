"""What every case starts from: the registry of cases and the `Context` that a case is called with.

Cases run inside the pyfluss interpreter, where `fluss` is the published client. The test process imports the same
modules only to learn the names of the cases; there `fluss` is this project and is never used. That is why cases take
`fluss` from here, loosely typed, and touch it only inside functions.
"""

from __future__ import annotations

import asyncio
import importlib
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tools.waiting import eventually

fluss: Any = importlib.import_module("fluss")


CaseBody = Callable[["Context"], Awaitable[None]]


@dataclass(frozen=True)
class Case:
    """A registered case: `server` names the kind of server it needs, `peer` puts it into the short run on Apache.

    `apache` is False for the few cases that the peer does not pass itself.
    """

    name: str
    body: CaseBody
    server: str
    peer: bool
    apache: bool


_registry: dict[str, Case] = {}


def registered() -> Mapping[str, Case]:
    """All cases of the modules imported so far, by "module:function"."""
    return _registry


def case(server: str = "plain", peer: bool = False, apache: bool = True) -> Callable[[CaseBody], CaseBody]:
    """Register an async function as a case.

    `server`: "plain" (shared by many cases), "remote" (tiny segments, uploaded every second), "guarded" (checks
    permissions) or "own" (may be stopped).
    """

    def register(body: CaseBody) -> CaseBody:
        module = body.__module__.rpartition(".")[2]
        name = f"{module}:{body.__name__}"
        _registry[name] = Case(name, body, server, peer, apache)
        return body

    return register


@dataclass
class Context:
    """One run of one case: addresses, a database of its own, and connections that are closed when the case ends.

    Settings: `bootstrap`, `sasl_bootstrap`, `target` ("apache", "standalone" or "embedded"), `tablets`.
    """

    settings: Mapping[str, Any]
    ask: Callable[[str], Awaitable[None]]
    database: str = field(default_factory=lambda: f"case_{uuid.uuid4().hex[:10]}")
    _connections: list[Any] = field(default_factory=list)
    _database_made: bool = False

    @property
    def bootstrap(self) -> str:
        """The plaintext address."""
        return str(self.settings["bootstrap"])

    @property
    def is_apache(self) -> bool:
        """True on the peer: for the few things that it does not do at all."""
        return str(self.settings["target"]) == "apache"

    async def connect(self, **properties: Any) -> Any:
        """A new connection; `properties` are attributes of pyfluss's `Config`."""
        config = fluss.Config({"bootstrap.servers": self.bootstrap})
        for key, value in properties.items():
            setattr(config, key, value)
        connection = await fluss.FlussConnection.create(config)
        self._connections.append(connection)
        return connection

    async def connection(self) -> Any:
        """The case's first connection, made when needed."""
        return self._connections[0] if self._connections else await self.connect()

    async def admin(self) -> Any:
        """An admin of the first connection, with the case's database in place."""
        admin = (await self.connection()).get_admin()
        if not self._database_made:
            await admin.create_database(self.database, ignore_if_exists=True)
            self._database_made = True
        return admin

    def path(self, table: str = "t") -> Any:
        """A table path in the case's database."""
        return fluss.TablePath(self.database, table)

    async def create(self, fields: Mapping[str, pa.DataType] | pa.Schema, name: str = "t", **descriptor: Any) -> Any:
        """Create a table and wait until its buckets have leaders; returns its path."""
        admin = await self.admin()
        schema = fields if isinstance(fields, pa.Schema) else pa.schema(list(fields.items()))
        path = self.path(name)
        await admin.create_table(path, fluss.TableDescriptor(fluss.Schema(schema), **descriptor))
        if not descriptor.get("partition_keys"):
            await self.wait_for_leaders(path, descriptor.get("bucket_count", 1))
        return path

    async def wait_for_leaders(self, path: Any, buckets: int, partition: str | None = None) -> None:
        """Apache Fluss elects leaders after the answer to CREATE_TABLE; readiness is when offsets can be listed."""
        admin = await self.admin()
        earliest = fluss.OffsetSpec.earliest()
        errors: list[str] = []
        transient = ["No leader found", "not ready", "not leader", "does not exist", "No route"]
        if self.is_apache:  # it tells a tablet server what it leads a moment after it has told everybody else
            transient.append("Unknown table or bucket")

        async def can_be_listed() -> bool:
            try:
                ids = list(range(buckets))
                if partition is None:
                    await admin.list_offsets(path, ids, earliest)
                else:
                    await admin.list_partition_offsets(path, partition, ids, earliest)
            except fluss.FlussError as error:
                errors.append(str(error))
                if not any(text in errors[-1] for text in transient):
                    raise
                return False
            return True

        await eventually(can_be_listed, f"leaders of {path}", seen=lambda: errors[-1])

    async def create_partition(self, path: Any, buckets: int = 1, **spec: str) -> int:
        """Create a partition, wait for its leaders, return its id."""
        admin = await self.admin()
        await admin.create_partition(path, spec)
        (info,) = await admin.list_partition_infos(path, spec)
        await self.wait_for_leaders(path, buckets, info.partition_name)
        return int(info.partition_id)

    async def table(self, path: Any) -> Any:
        """The opened table."""
        return await (await self.connection()).get_table(path)

    async def append(self, path: Any, rows: Iterable[Any], name: str | None = None) -> None:
        """Append rows with the case's first connection and wait for their acknowledgement."""
        writer = (await self.table(path)).new_append().create_writer()
        for row in rows:
            writer.append(row)
        await writer.flush()

    async def scanner(self, path: Any, buckets: Sequence[int] = (0,), batches: bool = False, **scan: Any) -> Any:
        """A scanner over these buckets from the earliest offset; `scan` names builder calls and their argument."""
        builder = (await self.table(path)).new_scan()
        for call, argument in scan.items():
            builder = getattr(builder, call)(argument)
        made = builder.create_record_batch_log_scanner() if batches else builder.create_log_scanner()
        scanner = await made
        if buckets:
            scanner.subscribe_buckets(dict.fromkeys(buckets, fluss.EARLIEST_OFFSET))
        return scanner

    async def read_rows(self, path: Any, count: int, buckets: Sequence[int] = (0,), **scan: Any) -> list[Any]:
        """Poll until `count` rows have come; fails when they do not come in time."""
        scanner = await self.scanner(path, buckets, **scan)
        return [record.row for record in await poll_records(scanner, count)]

    async def read_arrow(self, path: Any, buckets: Sequence[int] = (0,), **scan: Any) -> pa.Table:
        """Everything up to the latest offsets, as an Arrow table."""
        scanner = await self.scanner(path, buckets, batches=True, **scan)
        found: pa.Table = await scanner.to_arrow()
        return found

    async def close(self) -> None:
        """Drop the database and close the connections."""
        try:
            if self._database_made:
                await self._connections[0].get_admin().drop_database(self.database, ignore_if_not_exists=True)
        finally:
            for connection in self._connections:
                await connection.close()


async def poll_records(scanner: Any, count: int) -> list[Any]:
    """Poll a record scanner until `count` records have come."""
    records: list[Any] = []

    async def have_come() -> bool:
        if len(records) < count:
            records.extend(await scanner.poll(500))
        return len(records) >= count

    await eventually(have_come, f"{count} records", seen=lambda: len(records))
    return records


async def poll_batches(scanner: Any, count: int) -> list[Any]:
    """Poll a batch scanner until batches with `count` rows in all have come."""
    batches: list[Any] = []

    async def have_come() -> bool:
        if rows() < count:
            batches.extend(await scanner.poll_record_batch(500))
        return rows() >= count

    def rows() -> int:
        return sum(batch.batch.num_rows for batch in batches)

    await eventually(have_come, f"{count} rows", seen=lambda: batches)
    return batches


async def together(*tasks: Awaitable[Any]) -> list[Any]:
    """Wait for all; when one fails none of the others is left behind.

    A task that goes on after its case has closed the connection would block the whole worker: some calls of pyfluss
    wait inside the call for a connection that is gone.
    """
    running = [asyncio.ensure_future(task) for task in tasks]
    try:
        return list(await asyncio.gather(*running))
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def raises(code: int, awaitable: Awaitable[Any], *fragments: str) -> str:
    """Check that a call fails with this error code and these pieces of text; returns the text."""
    try:
        value = await awaitable
    except fluss.FlussError as error:
        got, text = error.error_code, str(error.message)
    else:
        raise AssertionError(f"error {code} expected, but the call returned {value!r}")
    assert got == code, f"error code {got} instead of {code}: {text}"
    for fragment in fragments:
        assert fragment in text, f"{fragment!r} not in {text!r}"
    return text
