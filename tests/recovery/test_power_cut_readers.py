"""Readers of a server whose machine lost power with `log.flush` = `os`: none skips a row, none waits forever."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from fluss.codec.batches.log_batch import iter_batches
from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.reserved_offsets import load_reserved, write_reserved
from tests.support.servers.targets import Target
from tests.support.spark.local_reads import plan_count, plan_read
from tools.peers.cache import PeerMissingError
from tools.peers.pyfluss_environment import pyfluss_python
from tools.servers.server_process import ServerProcess

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
SURVIVORS, SHOWN, NEW = 10, 30, 50

PYFLUSS_READER = """
import asyncio, sys
import fluss

async def main():
    config = fluss.Config({"bootstrap.servers": sys.argv[1]})
    connection = await fluss.FlussConnection.create(config)
    table = await connection.get_table(fluss.TablePath("fluss", "t"))
    admin = connection.get_admin()
    latest = (await admin.list_offsets(fluss.TablePath("fluss", "t"), [0], fluss.OffsetSpec.latest()))[0]
    for start in (0, int(sys.argv[2])):
        scanner = await table.new_scan().create_log_scanner()
        scanner.subscribe(bucket_id=0, start_offset=start)
        found, last = [], -1
        while last < latest - 1:
            for record in await scanner.poll(1000):
                found.append(record.row["id"])
                last = record.offset
        print(*found)

asyncio.run(main())
"""

PYFLUSS_TO_ARROW = """
import asyncio, sys
import fluss

async def main():
    config = fluss.Config({"bootstrap.servers": sys.argv[1]})
    connection = await fluss.FlussConnection.create(config)
    table = await connection.get_table(fluss.TablePath("fluss", "t"))
    scanner = await table.new_scan().create_record_batch_log_scanner()
    scanner.subscribe(bucket_id=0, start_offset=0)
    print("reading", flush=True)
    print(*(await scanner.to_arrow()).column("id").to_pylist())

asyncio.run(main())
"""


def _ids(table: pa.Table) -> list[int]:
    return sorted(table.column("id").to_pylist())


def _lose_power(log: Path) -> None:
    """Change a log as a power failure without syncs does: only its first batch is on disk, with another boot id."""
    (segment,) = log.glob("*.log")
    content = segment.read_bytes()
    (_, first), *_ = iter_batches(content)
    segment.write_bytes(content[: first.size])
    (log / "bucket.synced").unlink(missing_ok=True)
    given = load_reserved(FileSystem(), str(log))
    assert given is not None
    write_reserved(FileSystem(), str(log), given._replace(boot_id="the boot before"))


def _cut_server(server: ServerProcess, db: fluss.Database, **table: object) -> None:
    db.create_table("fluss.t", SCHEMA, bucket_count=1, **table)  # type: ignore[arg-type]
    write = db.upsert if table else db.append
    for start, stop in ((0, SURVIVORS), (SURVIVORS, SHOWN)):
        write("fluss.t", [{"id": each, "name": "before"} for each in range(start, stop)])
    assert _ids(db.to_arrow("fluss.t")) == list(range(SHOWN))
    server.kill()
    (log,) = (server.data / "data").glob("*/*/log-0")
    _lose_power(log)
    server.start()


def test_readers_of_a_log_table(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data", tablets=1, config={"log.flush": "os"}) as server,
        fluss.connect(server.address) as db,
    ):
        _cut_server(server, db)
        target = Target("ours", server.address, server.address, 1)
        # Before anything is written: the end of the log is a range without rows, and reading up to it ends.
        assert _ids(db.to_arrow("fluss.t")) == list(range(SURVIVORS))
        db.append("fluss.t", [{"id": each, "name": "after"} for each in range(SHOWN, NEW)])
        survivors, new = list(range(SURVIVORS)), list(range(SHOWN, NEW))
        assert _ids(db.to_arrow("fluss.t")) == survivors + new
        assert _ids(db.head("fluss.t", 25)) == [*survivors[-5:], *new]

        async def from_offset(offset: int) -> list[int]:
            table = await db.connection.get_table(fluss.TablePath("fluss", "t"))
            scanner = await table.new_scan().create_log_scanner()
            scanner.subscribe(0, offset)
            found: list[int] = []
            while NEW - 1 not in found:
                found += [record.row["id"] for record in scanner.poll(1000)]
            return found

        # A consumer that had done all rows it was shown gets the first new row next, and none is skipped.
        assert asyncio.run(from_offset(SHOWN)) == new
        assert asyncio.run(from_offset(SURVIVORS + 3)) == new
        assert plan_count(target, "fluss.t").count == len(survivors + new)
        assert _ids(plan_read(target, "fluss.t").table()) == survivors + new
        assert plan_read(target, "fluss.t", limit=15).table().num_rows == 15
        assert plan_count(target, "fluss.t", limit=15).count == 15


@pytest.mark.all
def test_pyfluss_reads_over_the_gap(tmp_path: Path) -> None:
    try:
        python = pyfluss_python()
    except PeerMissingError as error:
        pytest.skip(str(error))
    with (
        ServerProcess(tmp_path / "data", tablets=1, config={"log.flush": "os"}) as server,
        fluss.connect(server.address) as db,
    ):
        _cut_server(server, db)
        command = [str(python), "-c", PYFLUSS_TO_ARROW, server.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reading:
            assert reading.stdout is not None
            assert reading.stdout.readline() == "reading\n"
            # It waits for the last row below the latest offset, which the gap does not have; any later row ends it.
            db.append("fluss.t", [{"id": each, "name": "after"} for each in range(SHOWN, NEW)])
            found = list(map(int, reading.stdout.read().split()))
        assert found in ([*range(SURVIVORS)], [*range(SURVIVORS), *range(SHOWN, NEW)])
        command = [str(python), "-c", PYFLUSS_READER, server.address, str(SHOWN)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        survivors, new = list(range(SURVIVORS)), list(range(SHOWN, NEW))
        assert [list(map(int, line.split())) for line in done.stdout.splitlines()] == [survivors + new, new]


@pytest.mark.all
def test_a_primary_key_table_is_what_its_changelog_has(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data", tablets=1, config={"log.flush": "interval"}) as server,
        fluss.connect(server.address) as db,
    ):
        _cut_server(server, db, primary_keys=["id"])
        db.upsert("fluss.t", [{"id": each, "name": "after"} for each in range(SHOWN, NEW)])
        expected = [*range(SURVIVORS), *range(SHOWN, NEW)]
        assert _ids(db.to_arrow("fluss.t")) == expected
        assert db.lookup("fluss.t", SHOWN - 1) is None
        assert db.lookup("fluss.t", SHOWN) == {"id": SHOWN, "name": "after"}
        target = Target("ours", server.address, server.address, 1)
        assert _ids(plan_read(target, "fluss.t", mode="changelog").table()) == expected
