"""The result of overlapping attempts of one task, and of repeated tasks, in primary-key tables.

Tasks are called here without Spark, so that each can be ended in the middle.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType

import fluss
from fluss.errors import FlussError
from fluss.spark.options.parsing import parse_options
from fluss.spark.sessions.connection_cache import close_all
from fluss.spark.write import delivery, last_rows, spool, upsert
from fluss.spark.write.messages import TaskIdentity
from fluss.spark.write.plan import WritePlan, plan_write
from fluss.spark.write.task import commit, run_task
from tests.support.servers.targets import running_target

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("text", pa.string()), ("ver", pa.int64())])
COLUMNS = ("id", "text", "ver", "op")
EXACTLY_ONCE = {"delivery": "exactly-once", "rowKindColumn": "op"}
TASK = TaskIdentity("job", 0, 0, may_be_replay=False)

Row = tuple[int, str | None, int | None, str]


class Tables:
    """Tables of one database on the embedded server."""

    def __init__(self, address: str, db: fluss.Database) -> None:
        self.address, self.db = address, db
        self.database = f"keys_{uuid.uuid4().hex[:8]}"
        db.create_database(self.database)

    def create(self, properties: dict[str, str] | None = None) -> str:
        path = f"{self.database}.t{uuid.uuid4().hex[:8]}"
        self.db.create_table(path, SCHEMA, primary_keys=["id"], bucket_count=2, properties=properties or {})
        return path

    def plan(self, path: str, options: dict[str, str], names: tuple[str, ...] = COLUMNS) -> WritePlan:
        schema = StructType()
        for name in names:
            schema.add(name, StringType() if name in ("text", "op") else LongType(), nullable=name != "id")
        parsed = parse_options({"bootstrap.servers": self.address, "table": path, **options})
        return plan_write(parsed, schema, overwrite=False, is_stream=False)

    def rows(self, path: str) -> dict[int, tuple[Any, ...]]:
        found = self.db.to_arrow(path).to_pylist()
        assert len({row["id"] for row in found}) == len(found)
        return {row["id"]: (row["text"], row["ver"]) for row in found}


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    target = running_target("embedded")
    with fluss.connect(target.config()) as db:
        yield Tables(target.bootstrap_servers, db)
    close_all()


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch is passed on as it arrives, not gathered to megabytes first."""
    for module in (upsert, last_rows):
        monkeypatch.setattr(module, "wanted_bytes", lambda opened: 1)


def batches(rows: list[Row], size: int = 7) -> list[pa.RecordBatch]:
    schema = SCHEMA.append(pa.field("op", pa.string()))
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    return [pa.record_batch([pa.array(column) for column in zip(*part, strict=True)], schema=schema) for part in parts]


def killed_after(rows: list[Row], count: int) -> Iterator[pa.RecordBatch]:
    yield from batches(rows[:count])
    raise KeyboardInterrupt("the attempt was killed")


def random_rows(seed: int, count: int = 2000) -> tuple[list[Row], dict[int, tuple[Any, ...]]]:
    rng = random.Random(seed)
    rows: list[Row] = []
    model: dict[int, tuple[Any, ...]] = {}
    for number in range(count):
        key, kind = rng.randrange(100), rng.choice(["+I", "+U", "-U", "-D"])
        rows.append((key, f"t{number}", number, kind))
        if kind == "-D":
            model.pop(key, None)
        elif kind != "-U":
            model[key] = (f"t{number}", number)
    return rows, model


@pytest.mark.parametrize(("wanted", "way", "left"), [("exactly-once", "last_rows", 2), (None, "upsert", 1)])
def test_a_slower_attempt_that_is_killed(tables: Tables, wanted: str | None, way: str, left: int) -> None:
    """With exactly-once no row reverts to an older one. Otherwise that can happen, as documented."""
    path = tables.create()
    rows: list[Row] = [(key, f"{age} of {key}", age, "+I") for age in range(3) for key in range(10)]
    plan = tables.plan(path, {"rowKindColumn": "op"} | ({} if wanted is None else {"delivery": wanted}))
    assert plan.way == way
    assert run_task(plan, TASK, batches(rows)).rows == 30
    with pytest.raises(KeyboardInterrupt):
        run_task(plan, TASK, killed_after(rows, 20))
    assert tables.rows(path) == {key: (f"{left} of {key}", left) for key in range(10)}


def test_deletes_are_not_undone_by_a_killed_attempt(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second attempt dies while it writes, after it has all its rows, so it has only written last rows."""
    path = tables.create()
    rows: list[Row] = [(key, "old", 1, "+I") for key in range(40)]
    rows += [(key, None, None, "-D") for key in range(0, 40, 2)]
    rows += [(key, "new", 2, "+I") for key in range(0, 40, 4)]
    wanted = {key: ("new", 2) if key % 4 == 0 else ("old", 1) for key in range(40) if key % 4 != 2}
    plan = tables.plan(path, EXACTLY_ONCE)
    run_task(plan, TASK, batches(rows))
    assert tables.rows(path) == wanted
    written: list[Any] = []

    def dying(*arguments: Any) -> None:
        if written:
            raise KeyboardInterrupt("the attempt was killed")
        written.append(arguments)
        upsert.write_changes(*arguments)

    monkeypatch.setattr(last_rows, "SHARE_BYTES", 500)
    monkeypatch.setattr(last_rows, "write_changes", dying)
    with pytest.raises(KeyboardInterrupt):
        run_task(plan, TASK, batches(rows))
    assert written
    assert tables.rows(path) == wanted


@pytest.mark.parametrize("share_bytes", [2**30, 20_000, 300])
def test_the_last_rows_are_those_of_all_rows(tables: Tables, share_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory and through files, of which no more than a share is merged at once."""
    monkeypatch.setattr(last_rows, "SHARE_BYTES", share_bytes)
    monkeypatch.setattr(spool, "MAX_MEMORY_BYTES", share_bytes)
    rows, model = random_rows(share_bytes)
    path = tables.create()
    run_task(tables.plan(path, EXACTLY_ONCE), TASK, batches(rows))
    assert tables.rows(path) == model
    run_task(tables.plan(path, EXACTLY_ONCE), TASK, batches([(1, "x", 1, "-U")]))
    assert tables.rows(path) == model


def test_columns_that_are_not_written_keep_their_values(tables: Tables) -> None:
    path = tables.create()
    run_task(tables.plan(path, EXACTLY_ONCE), TASK, batches([(1, "a", 1, "+I"), (2, "b", 2, "+I")]))
    plan = tables.plan(path, {"delivery": "exactly-once", "columns": "id,text"}, ("id", "text"))
    rows = pa.record_batch({"id": [1, 2, 1], "text": ["older", "B", "A"]})
    run_task(plan, TASK, [rows])
    assert tables.rows(path) == {1: ("A", 1), 2: ("B", 2)}
    keys = pa.record_batch({"id": [2, 2], "op": ["-D", "delete"]})
    run_task(tables.plan(path, EXACTLY_ONCE, ("id", "op")), TASK, [keys])
    assert tables.rows(path) == {1: ("A", 1)}


def test_merge_engines_keep_the_same_rows(tables: Tables) -> None:
    """The first row, or the highest version, the later of equal ones; deletes that a table ignores hide no row."""
    rows: list[Row] = [
        (1, "a", 5, "+I"),
        (1, "b", 9, "+I"),
        (1, "c", 9, "+I"),
        (1, "d", 2, "+I"),
        (1, None, None, "-D"),
    ]
    versions = {"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "ver"}
    for properties, way, kept in (
        ({"table.merge-engine": "first_row"}, "upsert", ("a", 5)),
        (versions, "last_rows", ("c", 9)),
        ({"table.delete.behavior": "ignore"}, "last_rows", ("d", 2)),
    ):
        path = tables.create(properties)
        plan = tables.plan(path, EXACTLY_ONCE)
        assert plan.way == way
        run_task(plan, TASK, batches(rows, 2))
        assert tables.rows(path) == {1: kept}
        with pytest.raises(KeyboardInterrupt):
            run_task(plan, TASK, killed_after(rows, 2))
        assert tables.rows(path) == {1: kept}


def test_aggregating_tables_cannot_be_written_exactly_once(tables: Tables, caplog: pytest.LogCaptureFixture) -> None:
    """Refused if requested, else warned of once; and repeated rows do count again."""
    path = f"{tables.database}.totals"
    schema = fluss.Schema.builder().column("id", fluss.DataTypes.bigint()).column("total", fluss.DataTypes.bigint())
    schema = schema.with_aggregation("sum").column("top", fluss.DataTypes.bigint()).with_aggregation("max")
    properties = {"table.merge-engine": "aggregation"}
    descriptor = fluss.TableDescriptor(schema.primary_key(["id"]).build(), bucket_count=1, properties=properties)
    tables.db.create_table(path, descriptor)
    names = ("id", "total", "top")
    with pytest.raises(FlussError, match=r"delivery=exactly-once: table .*totals has the merge engine aggregation"):
        tables.plan(path, {"delivery": "exactly-once"}, names)
    delivery._warn_of_repetition.cache_clear()
    with caplog.at_level(logging.WARNING, delivery.__name__):
        tables.plan(path, {"delivery": "at-least-once"}, names)
        assert not caplog.messages
        plan = [tables.plan(path, {}, names) for _ in range(2)][-1]
    assert len(caplog.messages) == 1
    assert "totals aggregates new values in total (sum): rows" in caplog.messages[0]
    for _ in range(2):
        commit(plan, [run_task(plan, TASK, [pa.record_batch({"id": [1], "total": [5], "top": [7]})])])
    assert tables.db.to_arrow(path).to_pylist() == [{"id": 1, "total": 10, "top": 7}]
