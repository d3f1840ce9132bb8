"""The load on primary-key tables. It runs in the driver's process, so it uses what both clients have.

Rows have the five columns of the other row benchmarks, with `id` as the primary key. pyfluss has no upserts of Arrow
data, no `lookup_many` and no scan of whole tables: it skips the first two, and does the last with a limited
scan whose limit is the number of rows.
"""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pyarrow as pa

ROW_SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("score", pa.float64()), ("flag", pa.bool_()), ("count", pa.int32())]
)
_NAMES = pa.array([f"name {number}" for number in range(1000)])
ARROW_BATCH_ROWS = 10_000
ROWS_BETWEEN_YIELDS = 1_000
KEYS_PER_CALL = 50_000
POLL_MS = 1_000
MAX_EMPTY_POLLS = 5
FIRST_COUNT, UPDATED_COUNT = 1, 2


def dict_rows(first: int, end: int, count: int) -> list[dict[str, Any]]:
    """Rows with the keys from `first` to `end`; `count` distinguishes writes of the same keys."""
    return [
        {"id": n, "name": f"name {n % 1000}", "score": n / 7, "flag": n % 2 == 0, "count": count}
        for n in range(first, end)
    ]


def arrow_rows(ids: Any, count: int) -> pa.RecordBatch:
    """Rows with an array of keys, as Arrow data."""
    columns = [
        pa.array(ids, pa.int64()),
        _NAMES.take(pa.array(ids % len(_NAMES))),
        pa.array(ids / 7, pa.float64()),
        pa.array(ids % 2 == 0, pa.bool_()),
        pa.array(np.full(len(ids), count), pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)


class KvWorkloads(ABC):
    """The workloads, for a driver that has a connection and creates tables."""

    # The module of the client.
    client: Any

    @abstractmethod
    async def connection(self) -> Any:
        """The driver's one connection."""

    @abstractmethod
    async def create(
        self, table: str, schema: pa.Schema, compression: str, buckets: int, primary_keys: list[str] | None = None
    ) -> Any:
        """Create a table."""

    def path(self, table: str) -> Any:
        """The path of a table in the default database."""
        return self.client.TablePath("fluss", table)

    async def open(self, table: str) -> Any:
        """Open an existing table."""
        return await (await self.connection()).get_table(self.path(table))

    async def upsert_rows(self, table: str, rows: int, buckets: int) -> dict[str, float]:
        """Upsert new keys into a new table, one `upsert` each, until the last is acknowledged."""
        return await self._upsert_rows(await self._create_kv(table, buckets), rows, FIRST_COUNT)

    async def update_rows(self, table: str, rows: int) -> dict[str, float]:
        """Upsert the same keys again."""
        return await self._upsert_rows(await self.open(table), rows, UPDATED_COUNT)

    async def _create_kv(self, table: str, buckets: int) -> Any:
        return await self.create(table, ROW_SCHEMA, "ZSTD", buckets, ["id"])

    async def _upsert_rows(self, opened: Any, rows: int, count: int) -> dict[str, float]:
        made = dict_rows(0, rows, count)
        writer = opened.new_upsert().create_writer()
        started = time.perf_counter()
        for first in range(0, rows, ROWS_BETWEEN_YIELDS):
            for row in made[first : first + ROWS_BETWEEN_YIELDS]:
                writer.upsert(row)
            await asyncio.sleep(0)
        await writer.flush()
        return {"rows": rows, "seconds": time.perf_counter() - started}

    async def upsert_alone(self, table: str, times: int, seconds: float) -> dict[str, Any]:
        """Upsert one row at a time; return the seconds of each. Ends after `times` rows or `seconds`."""
        writer = (await self.open(table)).new_upsert().create_writer()
        taken: list[float] = []
        await writer.upsert(dict_rows(-1, 0, FIRST_COUNT)[0]).wait()  # pays what is only done once
        deadline = time.perf_counter() + seconds
        while not taken or (len(taken) < times and time.perf_counter() < deadline):
            started = time.perf_counter()
            await writer.upsert(dict_rows(-1, 0, len(taken))[0]).wait()
            taken.append(time.perf_counter() - started)
        return {"times": taken}

    async def upsert_arrow(self, table: str, rows: int, buckets: int) -> dict[str, float]:
        """Upsert new keys into a new table as Arrow batches, until the last is acknowledged."""
        return await self._upsert_arrow(await self._create_kv(table, buckets), np.arange(rows), FIRST_COUNT)

    async def update_arrow(self, table: str, rows: int) -> dict[str, float]:
        """Upsert the same keys again."""
        return await self._upsert_arrow(await self.open(table), np.arange(rows), UPDATED_COUNT)

    async def create_kv(self, table: str, buckets: int) -> dict[str, float]:
        """Create an empty table."""
        await self._create_kv(table, buckets)
        return {}

    async def add_arrow(self, table: str, first: int, rows: int) -> dict[str, float]:
        """Upsert more keys, from `first` on."""
        return await self._upsert_arrow(await self.open(table), np.arange(first, first + rows), FIRST_COUNT)

    async def update_random(self, table: str, keys: int, rows: int) -> dict[str, float]:
        """Upsert random known keys again."""
        ids = np.random.default_rng(7).integers(0, keys, rows)
        return await self._upsert_arrow(await self.open(table), ids, UPDATED_COUNT)

    async def _upsert_arrow(self, opened: Any, ids: Any, count: int) -> dict[str, float]:
        rows = len(ids)
        batches = [arrow_rows(ids[at : at + ARROW_BATCH_ROWS], count) for at in range(0, rows, ARROW_BATCH_ROWS)]
        writer = opened.new_upsert().create_writer()
        started = time.perf_counter()
        for batch in batches:
            writer.upsert_arrow(batch)
            await writer.ready()
        await writer.flush()
        return {"rows": rows, "seconds": time.perf_counter() - started}

    async def lookup_alone(self, table: str, keys: int, times: int, seconds: float) -> dict[str, Any]:
        """Look up one random key at a time; return the seconds of each. Ends after `times` lookups or `seconds`."""
        lookuper = (await self.open(table)).new_lookup().create_lookuper()
        choice = random.Random(7)
        taken: list[float] = []
        await _found(lookuper, 0)  # pays what is only done once
        deadline = time.perf_counter() + seconds
        while not taken or (len(taken) < times and time.perf_counter() < deadline):
            key = choice.randrange(keys)
            started = time.perf_counter()
            await _found(lookuper, key)
            taken.append(time.perf_counter() - started)
        return {"times": taken}

    async def lookup_tasks(self, table: str, keys: int, tasks: int, lookupers: int, seconds: float) -> dict[str, float]:
        """Run tasks that each look up random keys one after another for `seconds`, on some lookupers."""
        opened = await self.open(table)
        made = [opened.new_lookup().create_lookuper() for _ in range(lookupers)]
        await asyncio.gather(*[_found(lookuper, 0) for lookuper in made])
        started = time.perf_counter()
        deadline = started + seconds

        async def work(number: int) -> int:
            choice, lookuper, done = random.Random(number), made[number % lookupers], 0
            while not done or time.perf_counter() < deadline:
                await _found(lookuper, int(choice.random() * keys))
                done += 1
            return done

        done = sum(await asyncio.gather(*[work(number) for number in range(tasks)]))
        return {"rows": done, "seconds": time.perf_counter() - started}

    async def lookup_many(self, table: str, keys: int, seconds: float) -> dict[str, float]:
        """Look up random keys as Arrow data, many per call, with rows as Arrow data."""
        lookuper = (await self.open(table)).new_lookup().create_lookuper()
        choice = random.Random(7)
        wanted = pa.table({"id": pa.array([choice.randrange(keys) for _ in range(KEYS_PER_CALL)], pa.int64())})

        async def once() -> int:
            found = await lookuper.lookup_many(wanted)
            assert not found.column("count").null_count, "a key was not found"
            return int(found.num_rows)

        return await repeated(once, seconds)

    async def poll_changelog(self, table: str, rows: int, buckets: int) -> dict[str, float]:
        """Poll all records of the changelog, reading the kind and the row of each.

        A scanner of pyfluss on Apache Fluss sometimes stops before the end: then the records until then count.
        """
        opened = await self.open(table)
        scanner = await opened.new_scan().create_log_scanner()
        scanner.subscribe_buckets(dict.fromkeys(range(buckets), self.client.EARLIEST_OFFSET))
        started = last = time.perf_counter()
        seen = total = inserts = empty = 0
        while seen < rows and empty < MAX_EMPTY_POLLS:
            before = seen
            for record in await scanner.poll(POLL_MS):
                total += record.row["count"]
                inserts += record.change_type.short_string() == "+I"
                seen += 1
            empty = empty + 1 if seen == before else 0
            last = last if empty else time.perf_counter()
        if seen < rows / 2:
            raise RuntimeError(f"{seen} of {rows} changelog records arrived, {inserts} of them inserts")
        return {"rows": seen, "seconds": last - started}

    async def scan_table(self, table: str, rows: int, buckets: int, seconds: float) -> dict[str, float]:
        """Read the current rows as Arrow data."""
        opened = await self.open(table)

        async def whole() -> int:
            return int((await opened.to_arrow()).num_rows)

        async def limited() -> int:
            info = opened.get_table_info()
            seen = 0
            for number in range(buckets):
                bucket = self.client.TableBucket(info.table_id, number)
                scanner = opened.new_scan().limit(rows).create_bucket_batch_scanner(bucket)
                seen += int((await scanner.to_arrow()).num_rows)
            return seen

        result = await repeated(whole if hasattr(opened, "to_arrow") else limited, seconds)
        assert result["rows"] % rows == 0, f"{result['rows']} rows came, the table has {rows}"
        return result


async def _found(lookuper: Any, key: int) -> None:
    row = await lookuper.lookup({"id": key})
    if row is None:
        raise AssertionError(f"key {key} was not found")


async def repeated(once: Callable[[], Awaitable[int]], seconds: float) -> dict[str, float]:
    """Repeat a workload for `seconds`, at least once; return the total rows and seconds."""
    rows = 0
    started = time.perf_counter()
    while not rows or time.perf_counter() - started < seconds:
        rows += await once()
    return {"rows": rows, "seconds": time.perf_counter() - started}
