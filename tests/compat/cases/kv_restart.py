"""The server goes away and comes back while pyfluss upserts and looks up: the last write of each key is there."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.compat.cases.kit import Context, case, fluss, poll_records
from tests.compat.cases.kv_kit import create_keyed
from tests.compat.cases.restart import RECOVERY_SECONDS, allowed

KEYS = 50


async def write_around(context: Context, path: Any, event: str) -> int:
    """Upsert all keys round after round, have the event happen in the middle; returns the last round.

    A row that pyfluss refuses comes again, and those of its round that it took do not: each is there once a round.
    """
    connection = await context.connect(writer_batch_timeout_ms=5)
    writer = (await connection.get_table(path)).new_upsert().create_writer()
    stop = asyncio.Event()
    written = 0

    async def write() -> None:
        nonlocal written
        while not stop.is_set() or written % KEYS:
            with allowed(context, event):
                if written % KEYS:  # refused in the middle: with no batch under way pyfluss would never ask again
                    await connection.get_table(path)
                for _ in range(KEYS - written % KEYS):
                    round_number, key = divmod(written, KEYS)
                    writer.upsert([key, f"name {key}", round_number])
                    written += 1
            await asyncio.sleep(0.01)

    task = asyncio.ensure_future(write())
    await asyncio.sleep(0.5)
    await context.ask(event)
    await asyncio.sleep(0.5)
    stop.set()
    await task
    await asyncio.wait_for(writer.flush(), RECOVERY_SECONDS)
    return written // KEYS - 1


async def write_and_check(context: Context, event: str) -> None:
    """Lookups and the changelog agree on the last round, and every change follows from the one before."""
    path = await create_keyed(context, bucket_count=2)
    last = await write_around(context, path, event)
    table = await (await context.connect()).get_table(path)
    lookupers = [table.new_lookup().create_lookuper() for _ in range(10)]
    found = await asyncio.gather(*(lookupers[key % 10].lookup([key]) for key in range(KEYS)))
    assert found == [{"id": key, "name": f"name {key}", "amount": last} for key in range(KEYS)]
    scanner = await table.new_scan().create_log_scanner()
    scanner.subscribe_buckets(dict.fromkeys((0, 1), fluss.EARLIEST_OFFSET))
    state: dict[int, int] = {}
    expected = KEYS * (2 * last + 1)
    for record in await poll_records(scanner, expected):
        key, amount = record.row["id"], record.row["amount"]
        kind = record.change_type.short_string()
        if kind == "-U":
            assert state[key] == amount
        else:
            assert amount == state.get(key, -1) + 1, f"key {key}: {amount} after {state.get(key)}"
            state[key] = amount
    assert state == dict.fromkeys(range(KEYS), last)


@case(server="own", apache=False)
async def crash_while_upserting(context: Context) -> None:
    """kill -9 of the tablet servers under an idempotent writer: every upsert is applied once."""
    await write_and_check(context, "crash")


@case(server="own", apache=False)
async def restart_while_upserting(context: Context) -> None:
    """A stop and start of the whole server under an idempotent writer."""
    await write_and_check(context, "restart")
