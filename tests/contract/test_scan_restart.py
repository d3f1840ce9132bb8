"""Scanning over killed and restarted servers: no gap, no repeat, nothing raised.

Our processes are killed; Apache Fluss and the embedded server are stopped and started.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import fluss
from fluss.client.scan import ready_queue
from tests.support.servers.restartable import ALL_LOCAL, Disturbance, RestartableServer
from tests.support.tables.scan_tables import ONE_BATCH_AT_A_TIME, ScanTable, poll_ids, rows_of

BUCKETS = 4
ROWS_PER_ROUND = 500
# Java starts, and leaders are elected, while both processors are busy with other tests.
RESTART_MS = 150_000


def test_rows_come_once_and_in_order(disturbance: Disturbance, table_name: str) -> None:
    config = disturbance.server.config(**{"scanner.log.max-poll-records": "50"})
    with fluss.FlussConnection.open(config) as connection:
        table = ScanTable(connection, table_name, bucket_count=BUCKETS, bucket_keys=["id"])
        with table.records() as scanner:
            scanner.subscribe_all()
            offsets: dict[fluss.TableBucket, int] = {}
            seen: list[int] = []

            def scan(until: int) -> None:
                while len(seen) < until:
                    for bucket, records in scanner.poll(60_000).items():
                        for record in records:
                            assert record.offset == offsets.get(bucket, 0), f"gap or repeat in {bucket}"
                            offsets[bucket] = record.offset + 1
                            seen.append(record.row["id"])

            for number in range(disturbance.count):
                first = number * ROWS_PER_ROUND
                table.write(rows_of(range(first, first + ROWS_PER_ROUND)))
                scan(first + ROWS_PER_ROUND // 3)
                disturbance.happens(number)
                scan(first + ROWS_PER_ROUND)
            assert sorted(seen) == list(range(disturbance.count * ROWS_PER_ROUND))


def test_a_waiting_poll_survives_a_restart(server: RestartableServer, table_name: str) -> None:
    with fluss.FlussConnection.open(server.config()) as connection:
        table = ScanTable(connection, table_name, bucket_count=BUCKETS)
        with table.records() as scanner:
            scanner.subscribe_all(fluss.LATEST_OFFSET)
            found: list[int] = []
            thread = threading.Thread(target=lambda: found.extend(poll_ids(scanner, 3, RESTART_MS)))
            thread.start()
            server.goes_away()
            server.comes_back()
            table.write(rows_of([1, 2, 3]))
            thread.join(RESTART_MS / 1000)
            assert sorted(found) == [1, 2, 3]


def test_a_connection_logs_in_again(server: RestartableServer, table_name: str) -> None:
    """One that has to: everything that it does after the restart needs a login, with its rows as before."""
    with fluss.FlussConnection.open(server.target.sasl_config("admin")) as connection:
        table = ScanTable(connection, table_name, bucket_count=BUCKETS)
        with table.records() as scanner:
            scanner.subscribe_all()
            table.write(rows_of([1, 2]))
            found = poll_ids(scanner, 2)
            server.goes_away()
            server.comes_back()
            table.write(rows_of([3]))
            assert sorted(found + poll_ids(scanner, 1)) == [1, 2, 3]
        assert asyncio.run(table.admin.table_exists(table.path))


def test_a_bounded_read_waits_for_a_server_that_comes_back_and_gives_up_on_one_that_does_not(
    server: RestartableServer, table_name: str
) -> None:
    with (
        fluss.FlussConnection.open(server.config()) as connection,
        fluss.FlussConnection.open(server.config(**{"request-timeout": "5000"})) as impatient,
    ):
        table = ScanTable(connection, table_name, bucket_count=BUCKETS)
        table.write(rows_of(range(100)))
        opened = asyncio.run(_open(impatient, table.path))
        with table.batches() as patient_scanner, table.batches(opened.new_scan()) as scanner:
            patient_scanner.subscribe_all()
            scanner.subscribe_all()
            reader = scanner.to_arrow_batch_reader()
            scanner.subscribe_all()  # forgets what was fetched: the reader has nothing to wait for
            assert sum(batch.num_rows for batch in reader) == 0
            server.goes_away()
            with pytest.raises(fluss.FlussError):
                scanner.to_arrow()
            restart = threading.Timer(0.2, server.comes_back)
            restart.start()
            try:
                assert sorted(patient_scanner.to_arrow().column("id").to_pylist()) == list(range(100))
            finally:
                restart.join()


def test_a_bounded_read_that_fails_in_the_middle_loses_nothing(
    server: RestartableServer, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_queue, "MAX_READY_BYTES", 1)
    take_bounded = ready_queue.ReadyQueue.take_bounded
    config = server.config(**ONE_BATCH_AT_A_TIME, **{"request-timeout": "4000"})
    with fluss.FlussConnection.open(server.config()) as patient, fluss.FlussConnection.open(config) as connection:
        table = ScanTable(patient, table_name, bucket_count=1, properties=ALL_LOCAL)
        for start in range(0, 300, 10):
            table.write(rows_of(range(start, start + 10)))

        def take_and_lose_the_server(queue: Any, waiter: Any = None) -> Any:
            taken = take_bounded(queue, waiter)
            if taken and not server.is_away:
                server.goes_away()
            return taken

        opened = asyncio.run(_open(connection, table.path))
        with table.batches(opened.new_scan()) as scanner, monkeypatch.context() as patch:
            scanner.subscribe_all()
            patch.setattr(ready_queue.ReadyQueue, "take_bounded", take_and_lose_the_server)
            with pytest.raises(fluss.FlussError, match="end is not reached"):
                scanner.to_arrow()
            patch.undo()
            assert scanner.get_subscribed_buckets() == [(table.bucket(0), fluss.EARLIEST_OFFSET)]
            server.comes_back()
            table.read()  # patiently: Apache Fluss elects leaders for a while after it has come back
            assert scanner.to_arrow().column("id").to_pylist() == list(range(300))


async def _open(connection: fluss.FlussConnection, path: fluss.TablePath) -> fluss.FlussTable:
    return await connection.get_table(path)
