"""Four tables that are written all the time, and what must be in them: lake and log together, at any moment.

`LakeModel.check` trusts no code of ours: the lake through pyiceberg, at one snapshot; the log behind
that snapshot's offsets row by row; both put together must be exactly the rows that were acknowledged.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

import fluss
from fluss.api.connection import engine_of
from fluss.client.engine.table import TableAccess
from fluss.lake.tables.open_lake import lake_of
from fluss.lake.tiering.planning import read_log_ends
from fluss.model.paths import ChangeType
from tests.support.lake.tiered_tables import LakeTable
from tools.waiting import patience

SCHEMA = pa.schema([pa.field("region", pa.string(), False), pa.field("id", pa.int64(), False), ("text", pa.string())])
REGIONS = ("eu", "us")
KEYS = 200
ROWS_PER_WRITE = 20
DELETES_PER_WRITE = 5
WRITER_PAUSE_SECONDS = 0.05

Key = tuple[str, int]


class ModelTable:
    """One table and the rows that were acknowledged."""

    def __init__(self, db: fluss.Database, has_key: bool, is_partitioned: bool, freshness: str) -> None:
        options: dict[str, Any] = {"primary_keys": ["region", "id"], "bucket_keys": ["id"]} if has_key else {}
        self.table = LakeTable(
            db,
            SCHEMA,
            partitions=REGIONS if is_partitioned else (),
            properties={"table.datalake.freshness": freshness},
            **options,
        )
        info = db.info(self.table.name)
        self.table_id, self.properties = info.table_id, info.properties
        self.db, self.has_key = db, has_key
        self.rows: Counter[tuple[Any, ...]] = Counter()
        self.by_key: dict[Key, str] = {}
        self.written = 0

    def write(self, rng: random.Random) -> None:
        """Some rows; they count when the server has said that they are durable."""
        text = rng.randbytes(rng.randrange(20)).hex()
        if not self.has_key:
            numbers = range(self.written, self.written + ROWS_PER_WRITE)
            rows = [{"region": REGIONS[n % 2], "id": n, "text": text} for n in numbers]
            self.db.append(self.table.name, rows)
            self.rows.update(tuple(row.values()) for row in rows)
            self.written += ROWS_PER_WRITE
            return
        keys = [(REGIONS[n % 2], n) for n in rng.sample(range(KEYS), ROWS_PER_WRITE + DELETES_PER_WRITE)]
        changed, gone = keys[:ROWS_PER_WRITE], keys[ROWS_PER_WRITE:]
        self.db.upsert(self.table.name, [{"region": region, "id": n, "text": text} for region, n in changed])
        self.by_key |= dict.fromkeys(changed, text)
        self.db.delete(self.table.name, [{"region": region, "id": n} for region, n in gone])
        for key in gone:
            self.by_key.pop(key, None)
        self.written += len(keys)

    def change_one(self) -> None:
        """One of the current rows of a primary-key table."""
        region, number = key = next(iter(self.by_key))
        self.db.upsert(self.table.name, {"region": region, "id": number, "text": "changed"})
        self.by_key[key] = "changed"

    def lake_offsets(self) -> int:
        """The offsets of all its buckets that are in the lake."""
        lake = lake_of(self.properties)
        try:
            return sum(lake.load(self.table.path).committed_offsets(self.table_id).values())
        finally:
            lake.close()

    def rounds_with_deletes(self) -> int:
        """How many of its snapshots hide rows of older files."""
        summaries = [snapshot.summary for snapshot in self.table.outside(self.properties).metadata.snapshots]
        return sum(bool(summary and summary["added-position-deletes"]) for summary in summaries)

    def check(self) -> int:
        """Compare; the number of rows that came from the lake. The caller writes nothing meanwhile."""
        lake = lake_of(self.properties)
        try:
            last = lake.load(self.table.path).last_commit(self.table_id)
        finally:
            lake.close()
        offsets = {} if last is None else dict(last.offsets)
        in_lake = [] if last is None else _lake_rows(self.table.outside(self.properties), last.snapshot_id)
        places = [(row["region"], row["__bucket"], row["__offset"]) for row in in_lake]
        rows = [(row["region"], row["id"], row["text"]) for row in in_lake]
        changes = self._log_behind(offsets)
        if not self.has_key:
            assert len(set(places)) == len(places), f"{self.table.name}: an offset is in the lake twice"
            seen = Counter(rows) + Counter(row for _, row in changes)
            assert seen == self.rows, f"{self.table.name}: {_difference(seen, self.rows)}"
            return len(rows)
        found = {(region, number): text for region, number, text in rows}
        assert len(found) == len(rows), f"{self.table.name}: a key is in the lake twice"
        for kind, (region, number, text) in changes:
            if kind == ChangeType.DELETE:
                found.pop((region, number), None)
            elif kind != ChangeType.UPDATE_BEFORE:
                found[region, number] = text
        wrong = {key for key in {*found, *self.by_key} if found.get(key) != self.by_key.get(key)}
        assert not wrong, f"{self.table.name}: {len(wrong)} keys differ, {sorted(wrong)[:5]} among them"
        return len(rows)

    def _log_behind(self, offsets: dict[Any, int]) -> list[tuple[ChangeType, tuple[Any, ...]]]:
        table = TableAccess.open(engine_of(self.db.connection), self.table.path)
        ends = read_log_ends(table.engine, self.table.path)
        ranges = {bucket: (offsets.get(bucket, 0), end) for bucket, end in ends.latest.items()}
        found = []
        with table.read_log(ranges, patience_seconds=60.0) as log:
            for rows in log:
                kinds = rows.change_types or bytes(len(rows))
                values = (tuple(row.values()) for row in rows.rows.to_pylist())
                found += list(zip(map(ChangeType, kinds), values, strict=True))
        return found


def _lake_rows(table: Table, snapshot_id: int) -> list[dict[str, Any]]:
    return list(table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist())


def _difference(seen: Counter[Any], wanted: Counter[Any]) -> str:
    return f"missing {list((wanted - seen).items())[:5]}, too many {list((seen - wanted).items())[:5]}"


class LakeModel:
    """A writer thread over all four tables; `paused` for a look at them."""

    def __init__(self, db: fluss.Database, seed: int, freshness: str = "100 ms") -> None:
        self.tables = [
            ModelTable(db, has_key, is_partitioned, freshness)
            for has_key in (False, True)
            for is_partitioned in (False, True)
        ]
        self._rng = random.Random(seed)
        self._writing = threading.Lock()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._write_always, name="writer", daemon=True)
        self._thread.start()

    def _write_always(self) -> None:
        try:
            while not self._ended.wait(WRITER_PAUSE_SECONDS):
                for table in self.tables:
                    with self._writing:
                        table.write(self._rng)
        except BaseException as error:
            self._error = error

    @contextmanager
    def paused(self) -> Iterator[None]:
        with self._writing:
            if self._error is not None:
                raise self._error
            yield

    def check(self) -> int:
        """All tables; rows in the lake."""
        with self.paused():
            return sum(table.check() for table in self.tables)

    @property
    def row_count(self) -> int:
        """Rows of all tables that were acknowledged and not deleted since."""
        return sum(sum(table.rows.values()) + len(table.by_key) for table in self.tables)

    def offsets(self) -> list[int]:
        """How far each table has got into the lake: its offsets together."""
        return [table.lake_offsets() for table in self.tables]

    def rounds_with_deletes(self) -> int:
        """Of all tables."""
        return sum(table.rounds_with_deletes() for table in self.tables)

    def change_one(self) -> None:
        """One row of each primary-key table: so few are hidden by position deletes in the lake."""
        for table in self.tables:
            if table.has_key:
                table.change_one()

    def end(self) -> None:
        """Everything that was begun is written when this returns."""
        self._ended.set()
        self._thread.join(patience(120))
        assert not self._thread.is_alive(), "the last write does not end"
        if self._error is not None:
            raise self._error
