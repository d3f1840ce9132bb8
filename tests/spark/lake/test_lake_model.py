"""Random histories of a table with a lake: writes, rounds, compactions, dropped partitions, and Spark's reads of it.

Batch reads are compared with a model after every step. One stream runs through all of it, with random limits, and is
stopped and restarted from its offsets at random; in the end it has seen everything once.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

import fluss
from fluss.api.connection import engine_of
from fluss.lake.maintenance.service import open_maintenance
from tests.support.lake.tiered_tables import REGIONAL, LakeTable, by_id, person
from tests.support.lake.union_reads import drop_partition
from tests.support.spark.lake_reads import lake_server, read, streaming
from tests.support.spark.reader_calls import Offset

STEPS = int(os.environ.get("FLUSS_LAKE_STEPS", "14"))
REGIONS = ("eu", "us", "asia")
# Two files count as many, so that maintenance has something to do.
EAGER = {"iceberg.maintenance.compaction.min-files": "2"}

Row = dict[str, Any]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fluss.Database]:
    with lake_server(tmp_path_factory.mktemp("server")) as db:
        yield db


class History:
    """A table, its expected rows, and a stream over it."""

    def __init__(self, db: fluss.Database, seed: int, *, keyed: bool) -> None:
        self.db, self.random, self.keyed = db, random.Random(seed), keyed
        self.table = LakeTable(
            db,
            REGIONAL,
            partitions=REGIONS,
            primary_keys=["region", "id"] if keyed else None,
            bucket_keys=["id"],
            custom_properties=EAGER,
        )
        self.rows: dict[tuple[str, int], Row] = {}
        self.regions = list(REGIONS)
        self.next_id = 0
        self.offset: Offset | None = None
        self.seen: list[tuple[Any, ...]] = []

    def write(self) -> None:
        rows = []
        for _ in range(self.random.randint(1, 12)):
            number = self.random.randrange(20) if self.keyed else self.next_id
            self.next_id += 1
            region = self.random.choice(self.regions)
            rows.append({"region": region, **person(number, name=f"v{self.next_id}")})
        (self.db.upsert if self.keyed else self.db.append)(self.table.name, rows)
        self.rows |= {(row["region"], row["id"]): row for row in rows}

    def delete(self) -> None:
        alive = [key for key in self.rows if key[0] in self.regions]
        if self.keyed and alive:
            gone = self.random.sample(alive, min(len(alive), 3))
            self.db.delete(self.table.name, [{"region": region, "id": number} for region, number in gone])
            self.rows = {key: row for key, row in self.rows.items() if key not in gone}

    def tier(self) -> None:
        self.table.tier()

    def compact(self) -> None:
        with open_maintenance(engine_of(self.db.connection), self.table.path) as jobs:
            jobs.compact()

    def drop(self) -> None:
        """Drop a partition after a round, and after the stream has read it, so that no row is lost."""
        if len(self.regions) > 1:
            self.table.tier()
            self.stream(None)
            drop_partition(self.table, self.regions.pop())

    def stream(self, limit: int | None) -> None:
        """Run some batches, or all with None, by a query that starts where the last one ended."""
        options: dict[str, Any] = {"mode": "changelog"} if self.keyed else {}
        if limit is not None:
            options["maxRowsPerTrigger"] = limit
        with streaming(self.table, start=self.offset, **options) as query:
            if limit is None:
                self.seen += query.all_rows()
            else:
                for _ in range(self.random.randint(1, 3)):
                    self.seen += query.next_rows()
            self.offset = query.offset

    def step(self) -> None:
        actions = [self.write] * 5 + [self.tier] * 3 + [self.compact] * 2 + [self.delete] * 2 + [self.drop]
        self.random.choice(actions)()
        if self.random.random() < 0.6:
            self.stream(self.random.randint(1, 20))

    def check(self) -> None:
        wanted = by_id(list(self.rows.values()))
        assert read(self.table) == wanted

    def check_stream(self) -> None:
        self.stream(None)
        if not self.keyed:
            assert sorted(self.seen) == sorted(tuple(row.values()) for row in self.rows.values())
            return
        state: dict[tuple[str, int], tuple[Any, ...]] = {}
        for kind, _, _, region, number, *rest in self.seen:
            if kind in ("insert", "update_after"):
                state[region, number] = (region, number, *rest)
            else:
                assert state.pop((region, number)) == (region, number, *rest), "the old row is the previous one"
        assert state == {key: tuple(row.values()) for key, row in self.rows.items()}


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "keys"])
@pytest.mark.parametrize("seed", [1, 2])
def test_reads_equal_the_model_after_every_step(db: fluss.Database, seed: int, keyed: bool) -> None:
    history = History(db, seed, keyed=keyed)
    history.write()
    if seed % 2:  # else the stream begins at a random time, with or without a snapshot
        history.tier()
        with streaming(history.table) as query:
            assert "lake" in query.begin()
        history.stream(1)
    for _ in range(STEPS):
        history.step()
        history.check()
    history.check_stream()
