"""Reads while rows are written, tiered and expire: every read shows a state that the table had during it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import fluss
from tests.support.lake.tiered_tables import LakeTable, person
from tests.support.lake.union_reads import EXPIRING, SERVER, rows_of
from tools.waiting import wait_until

MIN_ROUNDS = 6
DEADLINE_SECONDS = 120.0
# More than the threads that an event loop has for blocking work.
READERS = 8


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fluss.Database]:
    with (
        fluss.embedded(tmp_path_factory.mktemp("server") / "data", config=SERVER) as cluster,
        fluss.connect(cluster.bootstrap_servers) as db,
    ):
        yield db


def repeat(stop: threading.Event, work: Callable[[], object], counts: list[int], number: int) -> None:
    """Repeat work until `stop`; `counts[number]` counts the rounds."""
    while not stop.is_set():
        work()
        counts[number] += 1


def run(is_enough: Callable[[], bool], *works: Callable[[], object]) -> None:
    """Run all at the same time, for some rounds of each and until it is enough; the first error ends it."""
    counts = [0] * len(works)
    stop = threading.Event()
    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(repeat, stop, work, counts, number) for number, work in enumerate(works)]
        try:
            wait_until(
                lambda: any(future.done() for future in futures) or (min(counts) >= MIN_ROUNDS and is_enough()),
                f"{MIN_ROUNDS} rounds of each, and enough",
                DEADLINE_SECONDS,
                seen=lambda: counts,
            )
        finally:
            stop.set()
    for future in futures:
        future.result()


@pytest.mark.all
def test_a_log_table_only_grows(db: fluss.Database) -> None:
    table = LakeTable(db, bucket_count=1, properties=EXPIRING)
    written = [0]

    def write() -> None:
        start = written[0]
        db.append(table.name, [person(n, name="x" * 50) for n in range(start, start + 40)])
        written[0] = start + 40

    def read() -> None:
        acknowledged = written[0]
        ids = db.to_arrow(table.name, ["id"]).column("id").to_pylist()
        assert ids == list(range(len(ids)))
        assert acknowledged <= len(ids)

    def has_expired() -> bool:
        acknowledged = written[0]
        return bool(db.to_arrow(table.name, ["id"], union=False).num_rows < acknowledged)

    write()
    run(has_expired, write, table.tier, *[read] * READERS)
    read()
    assert has_expired(), "nothing expired during the test: it shows less than intended"


def test_a_primary_key_table_is_never_half_changed(db: fluss.Database) -> None:
    """Each batch gives all keys of the one bucket the next version, in one request: a read sees one version of all."""
    table = LakeTable(db, bucket_count=1, primary_keys=["id"])
    version = [0]
    keys = range(50)

    def write() -> None:
        db.upsert(table.name, [person(n, age=version[0] + 1) for n in keys])
        version[0] += 1

    def read() -> None:
        acknowledged = version[0]
        for union in (None, True):
            rows = rows_of(table, union=union)
            assert len(rows) == len(keys)
            ages = {row["age"] for row in rows}
            assert len(ages) == 1
            assert ages.pop() >= acknowledged

    write()
    run(lambda: True, write, table.tier, *[read] * READERS)
