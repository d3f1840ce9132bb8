"""Random upserts, deletes, partial updates, restarts and kills of a real server against a dict.

One server for all examples, a new table for each. After every restart and kill, and at the end, the current rows, the
rows found by key and the rows that result from the changelog are those of the dict; each old row in the changelog is
the one that was there. Logs are rolled and snapshots are taken all the time, so that a start finds all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import fluss
from fluss import DataTypes
from tests.support.runner.lanes import rounds
from tests.support.tables.kv_reader import read_changes, replay
from tools.servers.ports import free_ports
from tools.servers.server_process import ServerProcess
from tools.waiting import patience, wait_until

EXAMPLES, STEPS = rounds(gate=3, all_lanes=6), 20
WAIT_SECONDS = patience(60.0)
BUCKETS = 2
CHILDREN = ("coordinator", "tablet-0", "tablet-1")
REGIONS = ("eu", "us")
OPTIONS = {"log.segment.file-size": "8kb", "kv.snapshot.interval": "100ms"}
SCHEMA_COLUMNS = ("id", "region", "count", "text")
Row = tuple[int, str, int | None, str | None]
Rows = dict[tuple[int, str], Row]
Merge = Callable[[Row | None, Row], Row]

KEYS = st.tuples(st.integers(0, 15), st.sampled_from(REGIONS))
COUNTS = st.none() | st.integers(-(2**40), 2**40)
TEXTS = st.none() | st.text("ab\x00ä", max_size=5)
ROWS = st.builds(lambda key, count, text: (*key, count, text), KEYS, COUNTS, TEXTS)


def last_row(old: Row | None, new: Row) -> Row:
    return new


def first_row(old: Row | None, new: Row) -> Row:
    return old or new


def highest_version(old: Row | None, new: Row) -> Row:
    if old is None or old[2] is None:
        return new
    return new if new[2] is not None and new[2] >= old[2] else old


def aggregated(old: Row | None, new: Row) -> Row:
    """Counts are added, strings are joined."""
    if old is None:
        return new
    counts = [count for count in (old[2], new[2]) if count is not None]
    texts = [text for text in (old[3], new[3]) if text is not None]
    return (*old[:2], sum(counts) if counts else None, ",".join(texts) if texts else None)


ENGINES: dict[str, tuple[Merge, dict[str, str]]] = {
    "none": (last_row, {}),
    "first_row": (first_row, {"table.merge-engine": "first_row"}),
    "versioned": (
        highest_version,
        {"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "count"},
    ),
    "aggregation": (aggregated, {"table.merge-engine": "aggregation", "table.delete.behavior": "allow"}),
}


class KvServerModel(RuleBasedStateMachine):
    """One table and its model."""

    server: ClassVar[ServerProcess]
    connection: ClassVar[fluss.FlussConnection]
    tables: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.rows: Rows = {}

    @initialize(
        engine=st.sampled_from(["none", "none", *ENGINES]),
        partitioned=st.booleans(),
        image=st.sampled_from(["FULL", "FULL", "WAL"]),
    )
    def create(self, engine: str, partitioned: bool, image: str) -> None:
        self.engine = engine
        self.merge, properties = ENGINES[engine]
        if engine != "none":
            image = "FULL"  # the only one that all engines take
        self.has_full_image = image == "FULL"
        KvServerModel.tables += 1
        self.path = fluss.TablePath("fluss", f"model_{self.tables}")
        builder = fluss.Schema.builder().column("id", DataTypes.int()).column("region", DataTypes.string())
        builder = builder.column("count", DataTypes.bigint())
        builder = builder.with_aggregation("sum") if engine == "aggregation" else builder
        builder = builder.column("text", DataTypes.string())
        builder = builder.with_aggregation("listagg") if engine == "aggregation" else builder
        descriptor = fluss.TableDescriptor(
            builder.primary_key(["id", "region"]).build(),
            bucket_count=BUCKETS,
            partition_keys=["region"] if partitioned else None,
            properties={"table.changelog.image": image, **properties},
        )
        self.partitions = REGIONS if partitioned else None
        admin = self.connection.get_admin()

        async def body() -> bool:
            try:
                await admin.create_table(self.path, descriptor, ignore_if_exists=True)
                for region in self.partitions or ():
                    await admin.create_partition(self.path, {"region": region}, ignore_if_exists=True)
                self.table = await self.connection.get_table(self.path)
            except fluss.FlussError as error:
                if error.error_code != fluss.ErrorCode.NETWORK_EXCEPTION:
                    raise
                return False  # the coordinator is not back yet; changes of the catalog are not repeated by the client
            return True

        wait_until(lambda: asyncio.run(body()), "the table is made")
        self.writer = self.table.new_upsert().create_writer()
        if engine in ("none", "aggregation"):
            self.counts = self.table.new_upsert().partial_update_by_name(["id", "region", "count"]).create_writer()
        self.flush()

    def flush(self) -> None:
        self.writer.flush().result(WAIT_SECONDS)

    @rule(rows=st.lists(ROWS, min_size=1, max_size=12))
    def upsert(self, rows: list[Row]) -> None:
        for row in rows:
            self.writer.upsert(row)
            self._apply(row)

    @rule(rows=st.lists(ROWS, min_size=1, max_size=12))
    def upsert_arrow(self, rows: list[Row]) -> None:
        columns = [pa.array(values) for values in zip(*rows, strict=True)]
        types = [pa.int32(), pa.string(), pa.int64(), pa.string()]
        columns = [column.cast(kind) for column, kind in zip(columns, types, strict=True)]
        self.writer.upsert_arrow(pa.table(columns, names=list(SCHEMA_COLUMNS)))
        for row in rows:
            self._apply(row)

    def _apply(self, row: Row) -> None:
        self.rows[row[:2]] = self.merge(self.rows.get(row[:2]), row)

    @precondition(lambda self: self.engine in ("none", "aggregation"))
    @rule(keys=st.lists(KEYS, min_size=1, max_size=6))
    def delete(self, keys: list[tuple[int, str]]) -> None:
        for key in keys:
            self.writer.delete(key)
            self.rows.pop(key, None)

    @precondition(lambda self: self.engine in ("none", "aggregation"))
    @rule(changes=st.lists(st.tuples(KEYS, COUNTS), min_size=1, max_size=6))
    def update_counts(self, changes: list[tuple[tuple[int, str], int | None]]) -> None:
        self.flush()  # two writers know nothing of each other
        for key, count in changes:
            self.counts.upsert((*key, count))
            old = self.rows.get(key) or (*key, None, None)
            changed: Row = (*key, count, None if self.engine == "aggregation" else old[3])
            self.rows[key] = self.merge(self.rows.get(key), changed)
        self.counts.flush().result(WAIT_SECONDS)

    @precondition(lambda self: self.engine in ("none", "aggregation"))
    @rule(keys=st.lists(KEYS, min_size=1, max_size=4))
    def delete_counts(self, keys: list[tuple[int, str]]) -> None:
        self.flush()
        for key in keys:
            self.counts.delete(key)
            old = self.rows.get(key)
            if old is not None and old[3] is not None:
                self.rows[key] = (*key, None, old[3])
            else:
                self.rows.pop(key, None)
        self.counts.flush().result(WAIT_SECONDS)

    @rule(what=st.sampled_from(["restart", "kill", "kill", *CHILDREN]))
    def disturb(self, what: str) -> None:
        """In the middle of writes: what is in flight is sent again."""
        if what == "restart":
            self.server.stop()
            self.server.start()
        elif what == "kill":
            self.server.kill()
            self.server.start()
        else:
            self.server.kill_child(CHILDREN.index(what))
        self.check()

    def check(self) -> None:
        """Scan, lookups and changelog."""
        self.flush()
        found = asyncio.run(self._read())
        assert {row[:2]: row for row in found} == self.rows
        assert len(found) == len(self.rows)
        keys = [(number, region) for number in range(16) for region in REGIONS]
        looked_up = asyncio.run(self._look_up(keys))
        assert [row and tuple(row.values()) for row in looked_up] == [self.rows.get(key) for key in keys]
        if self.has_full_image:
            changes = read_changes(self.connection, self.path, self.partitions or [None])
            replayed = replay(changes, ["id", "region"])
            assert {key: tuple(row.values()) for key, row in replayed.items()} == self.rows

    async def _read(self) -> list[Any]:
        return [tuple(row.values()) for row in (await self.table.to_arrow()).to_pylist()]

    async def _look_up(self, keys: list[tuple[int, str]]) -> list[Any]:
        found: list[Any] = await self.table.new_lookup().lookup_many(keys)
        return found

    def teardown(self) -> None:
        if hasattr(self, "table"):
            self.check()


SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # a shorter example would take many restarts to find, and crashes are never the same twice
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def test_the_server_matches_its_model(tmp_path: Path) -> None:
    port = free_ports(1)[0]  # the same one after every restart
    with (
        ServerProcess(tmp_path / "data", bind=f"127.0.0.1:{port}", tablets=2, config=OPTIONS) as server,
        fluss.FlussConnection.open(fluss.Config({"bootstrap.servers": server.address})) as connection,
    ):
        KvServerModel.server, KvServerModel.connection = server, connection
        run_state_machine_as_test(KvServerModel, settings=SETTINGS)
