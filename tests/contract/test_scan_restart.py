"""Scanning over killed and restarted servers: no gap, no repeat, nothing raised."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import fluss
from tests.support.scan_tables import ScanTable, poll_ids, rows_of
from tests.support.server_process import ServerProcess

BUCKETS = 4
ROUNDS = 4
ROWS_PER_ROUND = 500


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", tablets=2) as server:
        # The same port after a restart: clients know the server by it.
        server._command[server._command.index("--bind") + 1] = server.address
        yield server


@pytest.mark.parametrize("what", ["whole server", "tablets"])
def test_rows_come_once_and_in_order(server: ServerProcess, what: str) -> None:
    config = fluss.Config({"bootstrap.servers": server.address, "scanner.log.max-poll-records": "50"})
    with fluss.FlussConnection.open(config) as connection:
        table = ScanTable(connection, "restarts", bucket_count=BUCKETS, bucket_keys=["id"])
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

            for number in range(ROUNDS):
                first = number * ROWS_PER_ROUND
                table.write(rows_of(range(first, first + ROWS_PER_ROUND)))
                scan(first + ROWS_PER_ROUND // 3)
                if what == "tablets":
                    server.kill_role(f"tablet-{number % 2}")
                else:
                    server.kill()
                    server.start()
                scan(first + ROWS_PER_ROUND)
            assert sorted(seen) == list(range(ROUNDS * ROWS_PER_ROUND))


def test_a_waiting_poll_survives_a_restart(server: ServerProcess) -> None:
    with fluss.FlussConnection.open(fluss.Config({"bootstrap.servers": server.address})) as connection:
        table = ScanTable(connection, "waiting", bucket_count=BUCKETS)
        with table.records() as scanner:
            scanner.subscribe_all(fluss.LATEST_OFFSET)
            found: list[int] = []
            thread = threading.Thread(target=lambda: found.extend(poll_ids(scanner, 3)))
            thread.start()
            server.kill()
            server.start()
            table.write(rows_of([1, 2, 3]))
            thread.join(60)
            assert sorted(found) == [1, 2, 3]


def test_a_bounded_read_waits_for_a_server_that_comes_back(server: ServerProcess) -> None:
    with fluss.FlussConnection.open(fluss.Config({"bootstrap.servers": server.address})) as connection:
        table = ScanTable(connection, "bounded", bucket_count=BUCKETS)
        table.write(rows_of(range(100)))
        with table.batches() as scanner:
            scanner.subscribe_all()
            server.kill()
            restart = threading.Timer(0.2, server.start)
            restart.start()
            try:
                assert sorted(scanner.to_arrow().column("id").to_pylist()) == list(range(100))
            finally:
                restart.join()


def test_a_bounded_read_gives_up_on_a_server_that_does_not(server: ServerProcess) -> None:
    config = fluss.Config({"bootstrap.servers": server.address, "request-timeout": "1000"})
    with fluss.FlussConnection.open(config) as connection:
        table = ScanTable(connection, "gone", bucket_count=1)
        table.write(rows_of(range(10)))
        with table.batches() as scanner:
            scanner.subscribe_all()
            reader = scanner.to_arrow_batch_reader()
            scanner.subscribe_all()  # forgets what was fetched: the reader has nothing to wait for
            assert sum(batch.num_rows for batch in reader) == 0
            server.kill()
            with pytest.raises(fluss.FlussError):
                scanner.to_arrow()
