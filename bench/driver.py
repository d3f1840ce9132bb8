"""The process that makes the load, with the published client or with ours: `python -m bench.driver ADDRESS [MODULE]`.

Reads one JSON line per step from standard input and writes one JSON line with its figures. A driver serves one server
and lives as long as the benchmark, so that imports, sample data and connections are made once. MODULE is the client:
`fluss`, which is pyfluss in the environment of pyfluss, or `fluss.aio`, which is ours in our environment and has the
same API. Nothing else differs.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import socket
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa

from bench.kv_workloads import ROW_SCHEMA, KvWorkloads, repeated

fluss: Any = importlib.import_module(sys.argv[2] if len(sys.argv) > 2 else "fluss")

WIDE_COLUMNS = 16
WIDE_ROWS_PER_BATCH = 2_000
POLL_MS = 1_000
CONNECT_RETRY_SECONDS = 0.005
ECHO_ROUNDS = 200
SCANNER_SETTLE_SECONDS = 0.05

WIDE_SCHEMA = pa.schema(
    [(f"i{n}", pa.int64()) for n in range(4)]
    + [(f"f{n}", pa.float64()) for n in range(4)]
    + [(f"s{n}", pa.string()) for n in range(8)]
)
NARROW_SCHEMA = ROW_SCHEMA


def wide_batch(start: int) -> pa.RecordBatch:
    """Rows of about 0.9 KB: 8 numbers and 8 strings of about 100 characters that compress like logs."""
    numbers = range(start, start + WIDE_ROWS_PER_BATCH)
    columns: list[pa.Array] = [pa.array([n * (c + 1) for n in numbers], pa.int64()) for c in range(4)]
    columns += [pa.array([n / (c + 3) for n in numbers], pa.float64()) for c in range(4)]
    for column in range(8):
        texts = [
            f"{column}:{n:012d} {(n * 2654435761) % 2**32:08x} user agent and request path of event ".ljust(102, "x")
            for n in numbers
        ]
        columns.append(pa.array(texts))
    return pa.record_batch(columns, schema=WIDE_SCHEMA)


class Driver(KvWorkloads):
    """The workloads. Each returns a dict of figures."""

    client = fluss

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._wide = [wide_batch(number * WIDE_ROWS_PER_BATCH) for number in range(8)]
        self._connection: Any = None

    async def connection(self) -> Any:
        """The driver's one connection."""
        if self._connection is None:
            self._connection = await self._connect()
        return self._connection

    async def _connect(self) -> Any:
        return await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": self._bootstrap}))

    async def first_table(self, started_at: float, deadline_seconds: float = 60) -> dict[str, float]:
        """Try until a table can be created; return seconds since `started_at` (a time of the machine's wall clock).

        pyfluss waits 100, 200 and 400 ms between its own attempts to connect, which would be measured instead of the
        server: so it is used only after the port is open.
        """
        host, _, port = self._bootstrap.rpartition(":")
        while True:
            try:
                socket.create_connection((host, int(port))).close()
                break
            except OSError:
                if time.time() - started_at > deadline_seconds:
                    raise
                await asyncio.sleep(CONNECT_RETRY_SECONDS)
        while True:
            try:
                connection = await self._connect()
                path = fluss.TablePath("fluss", "first")
                descriptor = fluss.TableDescriptor(fluss.Schema(NARROW_SCHEMA))
                await connection.get_admin().create_table(path, descriptor)
                seconds = time.time() - started_at
                await connection.get_admin().drop_table(path)
                await connection.close()
                return {"seconds": seconds}
            except fluss.FlussError:
                if time.time() - started_at > deadline_seconds:
                    raise
                await asyncio.sleep(CONNECT_RETRY_SECONDS)

    async def create(
        self, table: str, schema: pa.Schema, compression: str, buckets: int, primary_keys: list[str] | None = None
    ) -> Any:
        """Create a table and wait until its buckets have leaders."""
        admin = (await self.connection()).get_admin()
        path = self.path(table)
        await admin.drop_table(path, ignore_if_not_exists=True)
        kind, _, level = compression.partition(":")
        properties = {"table.log.arrow.compression.type": kind}
        if level:
            properties["table.log.arrow.compression.zstd.level"] = level
        made = fluss.Schema(schema, primary_keys=primary_keys) if primary_keys else fluss.Schema(schema)
        descriptor = fluss.TableDescriptor(made, bucket_count=buckets, properties=properties)
        await admin.create_table(path, descriptor)
        deadline = time.monotonic() + 20
        while True:
            try:
                await admin.list_offsets(path, list(range(buckets)), fluss.OffsetSpec.earliest())
                return await (await self.connection()).get_table(path)
            except fluss.FlussError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.02)

    async def append_arrow(self, table: str, rows: int, compression: str, buckets: int) -> dict[str, float]:
        """Append Arrow batches of 16 columns to a new table, until the last is acknowledged."""
        opened = await self.create(table, WIDE_SCHEMA, compression, buckets)
        writer = opened.new_append().create_writer()
        whole, rest = divmod(rows, WIDE_ROWS_PER_BATCH)
        batches = [self._wide[number % len(self._wide)] for number in range(whole)]
        batches += [self._wide[0].slice(0, rest)] if rest else []
        started = time.perf_counter()
        for batch in batches:
            writer.write_arrow_batch(batch)
            await asyncio.sleep(0)
        await writer.flush()
        seconds = time.perf_counter() - started
        return {"rows": rows, "seconds": seconds, "bytes": sum(batch.nbytes for batch in batches)}

    async def append_rows(self, table: str, rows: int, buckets: int) -> dict[str, float]:
        """Append dicts of 5 columns to a new table, until the last is acknowledged."""
        opened = await self.create(table, NARROW_SCHEMA, "ZSTD", buckets)
        sample = [
            {"id": n, "name": f"name {n % 1000}", "score": n / 7, "flag": n % 2 == 0, "count": n % 100}
            for n in range(10_000)
        ]
        writer = opened.new_append().create_writer()
        started = time.perf_counter()
        for first in range(0, rows, len(sample)):
            for row in sample[: rows - first]:
                writer.append(row)
            await asyncio.sleep(0)
        await writer.flush()
        return {"rows": rows, "seconds": time.perf_counter() - started}

    async def scan(
        self, table: str, rows: int, columns: list[str] | None, buckets: int, seconds: float = 0
    ) -> dict[str, float]:
        """Poll Arrow batches from the start of a table until all rows have arrived; repeat for `seconds`."""
        opened = await self.open(table)

        async def once() -> int:
            builder = opened.new_scan()
            if columns is not None:
                builder = builder.project_by_name(columns)
            scanner = await builder.create_record_batch_log_scanner()
            scanner.subscribe_buckets(dict.fromkeys(range(buckets), fluss.EARLIEST_OFFSET))
            seen = 0
            while seen < rows:
                seen += sum(batch.batch.num_rows for batch in await scanner.poll_record_batch(POLL_MS))
            return seen

        return await repeated(once, seconds)

    async def poll_records(self, table: str, rows: int, buckets: int, seconds: float = 0) -> dict[str, float]:
        """Poll records from the start of a table, reading the row of each."""
        opened = await self.open(table)

        async def once() -> int:
            scanner = await opened.new_scan().create_log_scanner()
            scanner.subscribe_buckets(dict.fromkeys(range(buckets), fluss.EARLIEST_OFFSET))
            seen = total = 0
            while seen < rows:
                for record in await scanner.poll(POLL_MS):
                    total += record.row["count"]
                    seen += 1
            return seen

        return await repeated(once, seconds)

    async def lone_rows(self, table: str, times: int, seconds: float) -> dict[str, Any]:
        """Append one row at a time: until it is acknowledged, then until a polling scanner has it.

        All times are returned. Each of the two ends after `times` rows or `seconds`, with one row at least.
        """
        opened = await self.create(table, NARROW_SCHEMA, "ZSTD", 1)
        writer = opened.new_append().create_writer()
        await writer.append({"id": -1, "name": "first"}).wait()  # pays what is only done once per writer
        acknowledged: list[float] = []
        deadline = time.perf_counter() + seconds
        while not acknowledged or (len(acknowledged) < times and time.perf_counter() < deadline):
            started = time.perf_counter()
            await writer.append({"id": len(acknowledged), "name": "lone"}).wait()
            acknowledged.append(time.perf_counter() - started)
        polled = await self._round_trips(opened, writer, len(acknowledged) + 1, times, seconds)
        return {"acknowledged": acknowledged, "polled": polled, "echo": echo()}

    async def _round_trips(self, opened: Any, writer: Any, end: int, times: int, seconds: float) -> list[float]:
        scanner = await opened.new_scan().create_log_scanner()
        scanner.subscribe(0, end)
        await scanner.poll(100)
        polled: list[float] = []
        deadline = time.perf_counter() + seconds
        while not polled or (len(polled) < times and time.perf_counter() < deadline):
            waiting = asyncio.ensure_future(self._poll_one(scanner))
            await asyncio.sleep(SCANNER_SETTLE_SECONDS)  # the scanner is at the end of the log and waits
            started = time.perf_counter()
            handle = writer.append({"id": len(polled), "name": "lone"})
            polled.append(await waiting - started)
            await handle.wait()
        return polled

    @staticmethod
    async def _poll_one(scanner: Any) -> float:
        while not len(await scanner.poll(POLL_MS)):
            pass
        return time.perf_counter()

    async def lookup_alone(self, table: str, keys: int, times: int, seconds: float) -> dict[str, Any]:
        """Look keys up one at a time, and measure a bare echo."""
        return {**await super().lookup_alone(table, keys, times, seconds), "echo": echo()}

    async def drop(self, table: str) -> dict[str, float]:
        """Drop a table."""
        admin = (await self.connection()).get_admin()
        await admin.drop_table(self.path(table), ignore_if_not_exists=True)
        return {}


def echo() -> float:
    """Median seconds of a bare 64-byte echo on loopback: the cost of a lone request without any work of a server."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            while data := peer.recv(64):
                peer.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    times = []
    with socket.create_connection(listener.getsockname()) as client, listener:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ECHO_ROUNDS):
            started = time.perf_counter()
            client.sendall(bytes(64))
            client.recv(64)
            times.append(time.perf_counter() - started)
    return statistics.median(times)


async def serve(bootstrap: str) -> None:
    """Handle lines until standard input ends."""
    driver = Driver(bootstrap)
    loop = asyncio.get_running_loop()
    print(json.dumps({"ready": True}), flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        message = json.loads(line)
        workload: Callable[..., Awaitable[dict[str, Any]]] = getattr(driver, message.pop("workload"))
        try:
            answer: dict[str, Any] = await workload(**message)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
