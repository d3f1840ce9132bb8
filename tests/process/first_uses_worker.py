"""A fresh process whose threads all use the client for the first time, at the same moment.

    python -m tests.process.first_uses_worker ADDRESS LOG_TABLE KEY_TABLE THREADS

Prints one line for each thread that failed.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable

import fluss


def _append(connection: fluss.FlussConnection, table: fluss.FlussTable, number: int) -> None:
    writer = table.new_append().create_writer()
    writer.append({"id": number, "name": f"n{number}"})
    asyncio.run(_flushed(writer))


def _upsert(connection: fluss.FlussConnection, table: fluss.FlussTable, number: int) -> None:
    writer = table.new_upsert().create_writer()
    writer.upsert({"id": number, "name": f"n{number}"})
    asyncio.run(_flushed(writer))


async def _flushed(writer: fluss.AppendWriter | fluss.UpsertWriter) -> None:
    await writer.flush()


def _look_up(connection: fluss.FlussConnection, table: fluss.FlussTable, number: int) -> None:
    async def found() -> object:
        return await table.new_lookup().create_lookuper().lookup({"id": 0})

    asyncio.run(found())


def _scan(connection: fluss.FlussConnection, table: fluss.FlussTable, number: int) -> None:
    async def scanned() -> None:
        with await table.new_scan().create_record_batch_log_scanner() as scanner:
            scanner.subscribe_all()
            assert scanner.to_arrow().num_rows >= 1

    asyncio.run(scanned())


def _read(connection: fluss.FlussConnection, table: fluss.FlussTable, number: int) -> None:
    async def read() -> None:
        assert (await table.to_arrow()).num_rows >= 1

    asyncio.run(read())


WAYS: tuple[tuple[bool, Callable[[fluss.FlussConnection, fluss.FlussTable, int], None]], ...] = (
    (False, _append),
    (True, _upsert),
    (True, _look_up),
    (False, _scan),
    (True, _read),
)


def main(address: str, log_table: str, key_table: str, thread_count: int) -> None:
    """Every thread begins a way of its own when all are there; nothing was used before, not even a table."""
    start = threading.Barrier(thread_count)
    config = {"bootstrap.servers": address}

    def use(number: int) -> None:
        has_key, way = WAYS[number % len(WAYS)]
        try:
            start.wait()
            with fluss.FlussConnection.open(fluss.Config(config)) as connection:
                path = fluss.TablePath("fluss", key_table if has_key else log_table)
                way(connection, asyncio.run(_opened(connection, path)), number)
        except BaseException:
            print(f"{way.__name__}: {traceback.format_exc()}".replace("\n", " | "), flush=True)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(thread_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def _opened(connection: fluss.FlussConnection, path: fluss.TablePath) -> fluss.FlussTable:
    return await connection.get_table(path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
