"""Apache Fluss with three tablet servers and a replica of every bucket on each: our client goes where the leaders go.

The cluster lives as long as this module. A row is acknowledged when two servers have it, so that no row may be lost
when one is killed, nor when another one is killed after the first has come back.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from fluss import col
from tests.support.tables.kv_reader import read_changes, replay
from tests.support.tables.log_reader import read_rows
from tools.peers.apache_fluss import ApacheFluss
from tools.peers.cache import PeerMissingError
from tools.peers.pyfluss_environment import pyfluss_python
from tools.servers.wire_client import WireClient
from tools.waiting import patience, wait_until

pytestmark = pytest.mark.all

SERVERS = 3
BUCKETS = 6
KEYS = 100  # below 128, where pyfluss has our hash of keys
ROWS_PER_FLUSH = 60
PAUSE_SECONDS = 0.02
WAIT_SECONDS = 120.0
OPTIONS = {
    # The others hear of a killed server when its session is over.
    "zookeeper.client.session-timeout": "10s",
    "log.replica.min-in-sync-replicas-number": "2",
    "kv.snapshot.interval": "5s",
}
LOG_SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])
KEY_SCHEMA = pa.schema([("id", pa.int32()), ("number", pa.int64())])

# What pyfluss sees: offsets and numbers of the rows of a log table by bucket, the rows of a primary-key table by key.
READ_WITH_PYFLUSS = """
import asyncio, json, os, sys, fluss

async def main(address, log, keyed, buckets, keys):
    connection = await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": address}))
    table = await connection.get_table(fluss.TablePath("fluss", log))
    scanner = await table.new_scan().create_record_batch_log_scanner()
    scanner.subscribe_buckets(dict.fromkeys(range(buckets), fluss.EARLIEST_OFFSET))
    numbers = (await scanner.to_arrow()).column("number").to_pylist()
    lookuper = (await connection.get_table(fluss.TablePath("fluss", keyed))).new_lookup().create_lookuper()
    rows = [await lookuper.lookup({"id": key}) for key in range(0, keys, 10)]
    print(json.dumps([numbers, [row and row["number"] for row in rows]]), flush=True)
    os._exit(0)  # the orderly way may abort inside pyfluss

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
"""


class Cluster:
    """Three servers, and a connection of ours to them."""

    def __init__(self, servers: ApacheFluss) -> None:
        self.servers = servers
        self.address = servers.bootstrap_servers
        self._made = 0

    def tables(self, db: fluss.Database) -> tuple[str, str]:
        """A log table and a primary-key table, new ones: a test may run again."""
        self._made += 1
        log, keyed = f"log_{self._made}", f"keyed_{self._made}"
        db.create_table(log, LOG_SCHEMA, bucket_count=BUCKETS, bucket_keys=["number"])
        db.create_table(keyed, KEY_SCHEMA, bucket_count=BUCKETS, primary_keys=["id"])
        return log, keyed

    def leaders(self, *tables: str) -> dict[tuple[str, int], int]:
        """The servers that lead, by table and bucket; -1 where none does."""
        with WireClient.connect(self.address) as client:
            answer = client.metadata(*[("fluss", table) for table in tables])
        return {
            (table.table_path.table_name, bucket.bucket_id): bucket.leader_id if bucket.HasField("leader_id") else -1
            for table in answer.table_metadata
            for bucket in table.bucket_metadata
        }

    def replicas(self, table: str) -> list[list[int]]:
        """The servers that have a replica, by bucket."""
        with WireClient.connect(self.address) as client:
            answer = client.metadata(("fluss", table))
        return [sorted(bucket.replica_id) for bucket in answer.table_metadata[0].bucket_metadata]


@pytest.fixture(scope="module", params=["apache"])
def running() -> Iterator[Cluster]:
    """One cluster for this module: five Java machines do not stay until the end of the run."""
    try:
        servers = ApacheFluss(OPTIONS, tablets=SERVERS)
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    with servers:
        yield Cluster(servers)


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    """All of its servers are there, also if a test failed while one was away."""
    for number in range(SERVERS):
        running.servers.start_tablet(number)
    return running


@pytest.fixture
def db(cluster: Cluster) -> Iterator[fluss.Database]:
    with fluss.connect(cluster.address) as database:
        yield database


@pytest.fixture(scope="module")
def python() -> Path | None:
    """The interpreter of pyfluss, where it is had."""
    try:
        return pyfluss_python()
    except PeerMissingError:
        return None


def check_with_pyfluss(
    python: Path | None, cluster: Cluster, log: str, keyed: str, numbers: list[int], rows: dict[int, int]
) -> None:
    """The published client finds the same rows."""
    if python is None:
        return
    arguments = [cluster.address, log, keyed, str(BUCKETS), str(KEYS)]
    command = [str(python), "-c", READ_WITH_PYFLUSS, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=patience(WAIT_SECONDS), cwd=cluster.servers.directory
    )
    assert done.returncode == 0, done.stderr
    found, looked_up = json.loads(done.stdout)
    assert sorted(found) == numbers
    assert looked_up == [rows.get(key) for key in range(0, KEYS, 10)]


def test_every_way_to_write_and_read(cluster: Cluster, db: fluss.Database, python: Path | None) -> None:
    log, keyed = cluster.tables(db)
    everywhere = list(range(SERVERS))
    for table in (log, keyed):
        assert cluster.replicas(table) == [everywhere] * BUCKETS
        assert sorted(set(cluster.leaders(table).values())) == everywhere
    rows = [{"number": number, "text": f"text {number}"} for number in range(600)]
    db.append(log, rows[:100])
    db.append(log, pa.Table.from_pylist(rows[100:], schema=LOG_SCHEMA))
    db.upsert(keyed, [{"id": key, "number": 0} for key in range(KEYS)])
    db.upsert(keyed, pa.table({"id": pa.array(range(KEYS), pa.int32()), "number": range(KEYS)}))
    db.delete(keyed, [(3,), (4,)])
    model = {key: key for key in range(KEYS) if key not in (3, 4)}

    assert db.lookup(keyed, 7) == {"id": 7, "number": 7}
    assert db.lookup_many(keyed, list(range(KEYS))) == [
        {"id": key, "number": key} if key in model else None for key in range(KEYS)
    ]
    for found in (db.scan(log), db.to_arrow(log)):
        assert found.sort_by("number").to_pylist() == rows
    assert {row["id"]: row["number"] for row in db.to_arrow(keyed).to_pylist()} == model
    assert sorted(db.scan(log, ["number"], where=col("number") >= 590).column(0).to_pylist()) == list(range(590, 600))
    assert db.to_arrow(log, limit=5).num_rows == db.to_arrow(keyed, limit=5).num_rows == 5
    for table, total in ((log, rows), (keyed, model)):
        assert limited(db, table, 5) == [5] * BUCKETS
        assert sum(limited(db, table, 1000)) == len(total)
    check_complete(db, log, len(rows))
    assert replayed(db, keyed) == model
    check_with_pyfluss(python, cluster, log, keyed, list(range(len(rows))), model)


def opened(db: fluss.Database, name: str) -> fluss.FlussTable:
    async def body() -> fluss.FlussTable:
        return await db.connection.get_table(fluss.TablePath("fluss", name))

    return asyncio.run(body())


def limited(db: fluss.Database, name: str, limit: int) -> list[int]:
    """How many rows a limit scan finds, by bucket."""
    table = opened(db, name)
    scan, table_id = table.new_scan().limit(limit), table.get_table_info().table_id
    buckets = [fluss.TableBucket(table_id, number) for number in range(BUCKETS)]
    return [scan.create_bucket_batch_scanner(bucket).to_arrow().num_rows for bucket in buckets]


def check_complete(db: fluss.Database, log: str, count: int) -> None:
    """Every number below that is in the log once, and in order within its bucket; offsets have no gap."""
    found = []
    for bucket in range(BUCKETS):
        numbers = [row["number"] for row in read_rows(db.connection, fluss.TablePath("fluss", log), bucket)]
        assert numbers == sorted(numbers), f"bucket {bucket} is not in order"
        found += numbers
    assert sorted(found) == list(range(count))


def replayed(db: fluss.Database, keyed: str) -> dict[int, int]:
    """The rows to which the changelog leads; it must have no change that does not fit."""
    rows = replay(read_changes(db.connection, fluss.TablePath("fluss", keyed)), ["id"])
    return {row["id"]: row["number"] for row in rows.values()}


class Traffic:
    """Rows that go on being written and scanned, each kind in a thread of its own, until `finish`.

    Threads and their state: each thread alone changes its own numbers; others read them, and they only grow.
    """

    def __init__(self, db: fluss.Database, log: str, keyed: str) -> None:
        self.appended = 0  # rows that are acknowledged: the numbers below
        self.upserted = 0
        self.scanned = 0
        self._log, self._keyed = opened(db, log), opened(db, keyed)
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(3)
        self._writing: list[Future[None]] = [self._pool.submit(self._append), self._pool.submit(self._upsert)]
        self._scanning = self._pool.submit(self._scan)

    def model(self, upserted: int) -> dict[int, int]:
        """The rows of the primary-key table after so many upserts."""
        return {number % KEYS: number for number in range(max(0, upserted - KEYS), upserted)}

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something to come while all of it goes on; raises what has ended a thread."""

        def holds() -> object:
            for thread in (*self._writing, self._scanning):
                if thread.done():
                    thread.result()
            return condition()

        wait_until(holds, what, WAIT_SECONDS, seen=lambda: (self.appended, self.upserted, self.scanned))

    def wait_for_more(self, what: str) -> None:
        """Wait until every bucket was written and read again: each flush has rows for all of them."""
        appended, upserted = self.appended, self.upserted
        self.wait_for(lambda: self.appended >= appended + 3 * ROWS_PER_FLUSH, f"appends {what}")
        self.wait_for(lambda: self.upserted >= upserted + 3 * ROWS_PER_FLUSH, f"upserts {what}")
        self.wait_for(lambda: self.scanned > appended + 2 * ROWS_PER_FLUSH, f"scanned rows {what}")

    def finish(self) -> None:
        """Write no more, and scan until all is seen."""
        self._stopping.set()
        for thread in self._writing:
            thread.result(patience(WAIT_SECONDS))
        self._scanning.result(patience(WAIT_SECONDS))

    def abandon(self) -> None:
        """Without waiting for anything, after a failure."""
        self._stopping.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _append(self) -> None:
        writer = self._log.new_append().create_writer()
        while not self._stopping.wait(PAUSE_SECONDS):
            for number in range(self.appended, self.appended + ROWS_PER_FLUSH):
                writer.append((number, f"text {number}"))
            writer.flush().result()
            self.appended += ROWS_PER_FLUSH

    def _upsert(self) -> None:
        writer = self._keyed.new_upsert().create_writer()
        while not self._stopping.wait(PAUSE_SECONDS):
            for number in range(self.upserted, self.upserted + ROWS_PER_FLUSH):
                writer.upsert((number % KEYS, number))
            writer.flush().result()
            self.upserted += ROWS_PER_FLUSH

    def _scan(self) -> None:
        """No offset twice and none left out, numbers in order within their bucket."""
        offsets, numbers = Counter[fluss.TableBucket](), dict[fluss.TableBucket, int]()
        scanner = asyncio.run(self._log.new_scan().create_log_scanner())
        with scanner:
            scanner.subscribe_all()
            while not (self._stopping.is_set() and self._has_all()):
                for bucket, records in scanner.poll(100).items():
                    for record in records:
                        assert record.offset == offsets[bucket], f"gap or repeat in {bucket}"
                        offsets[bucket] += 1
                        number = record.row["number"]
                        assert number > numbers.get(bucket, -1), f"{number} came after {numbers[bucket]} in {bucket}"
                        numbers[bucket] = number
                        self.scanned += 1

    def _has_all(self) -> bool:
        return all(thread.done() for thread in self._writing) and self.scanned >= self.appended


def test_servers_are_killed_one_after_the_other(cluster: Cluster, db: fluss.Database, python: Path | None) -> None:
    log, keyed = cluster.tables(db)
    traffic = Traffic(db, log, keyed)
    try:
        traffic.wait_for_more("before the first kill")
        first = cluster.leaders(log)[log, 0]
        kill_and_look(cluster, db, traffic, (log, keyed), first)
        cluster.servers.start_tablet(first)
        traffic.wait_for_more("with the first one back")
        second = cluster.leaders(log)[log, 0]
        assert second != first
        kill_and_look(cluster, db, traffic, (log, keyed), second)
        cluster.servers.start_tablet(second)
        traffic.wait_for_more("with all of them back")
        traffic.finish()
    finally:
        traffic.abandon()
    check_complete(db, log, traffic.appended)
    model = traffic.model(traffic.upserted)
    assert replayed(db, keyed) == model
    changes = read_changes(db.connection, fluss.TablePath("fluss", keyed))
    written = [change.row["number"] for change in changes if change.kind in ("+I", "+U")]
    assert sorted(written) == list(range(traffic.upserted))  # none was lost, none was applied twice
    assert db.lookup_many(keyed, list(range(KEYS))) == [{"id": key, "number": model[key]} for key in range(KEYS)]
    check_with_pyfluss(python, cluster, log, keyed, list(range(traffic.appended)), model)


def kill_and_look(cluster: Cluster, db: fluss.Database, traffic: Traffic, tables: tuple[str, str], server: int) -> None:
    """Kill a server while rows are written and scanned; then all that was acknowledged is there, and more comes."""
    log, keyed = tables
    cluster.servers.kill_tablet(server)
    appended, model = traffic.appended, traffic.model(traffic.upserted)
    traffic.wait_for(
        lambda: {server, -1}.isdisjoint(cluster.leaders(*tables).values()), f"new leaders for those of {server}"
    )
    rows = db.lookup_many(keyed, list(range(KEYS)))
    assert all(rows[key]["number"] >= number for key, number in model.items())
    assert db.lookup(keyed, 0)["number"] >= model[0]
    traffic.wait_for_more(f"while {server} is away")
    assert set(range(appended)) <= set(db.to_arrow(log).column("number").to_pylist())
    current = {row["id"]: row["number"] for row in db.to_arrow(keyed).to_pylist()}
    assert all(current[key] >= number for key, number in model.items())
    for table in tables:
        assert limited(db, table, 5) == [5] * BUCKETS
