"""Appends to a server without staged appends: attempts of one task, one after another and at the same time.

Tasks are called here without Spark, so that each step can be interrupted.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType, TimeType

import fluss
from fluss.codec.arrow.types import from_arrow_schema
from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.spark.options.parsing import FlussOptions, parse_options
from fluss.spark.sessions.connection_cache import close_all, open_table
from fluss.spark.write import append_claim, spooled
from fluss.spark.write.append import append
from fluss.spark.write.commit_notes import BATCH_MS, Markers
from fluss.spark.write.delivery import Way
from fluss.spark.write.messages import TaskDone, TaskIdentity
from fluss.spark.write.plan import WritePlan, plan_write
from fluss.spark.write.task import abort, commit, run_task
from tests.support.servers.targets import running_target
from tools.waiting import patience, wait_until

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
DEADLINE_SECONDS = patience(60.0)


@pytest.fixture(scope="module", params=["embedded", "apache"])
def options(request: pytest.FixtureRequest) -> Iterator[FlussOptions]:
    """Our server supports staged appends too, but the plan below does not use them."""
    target = running_target(request.param)
    name = f"spooled_{uuid.uuid4().hex[:8]}"
    with fluss.connect(target.config()) as db:
        db.create_database(name)
        db.create_table(f"{name}.events", SCHEMA, bucket_count=2)
    yield parse_options({"bootstrap.servers": target.bootstrap_servers, "table": f"{name}.events"})
    close_all()


@pytest.fixture
def plan(options: FlussOptions) -> WritePlan:
    with open_table(options) as opened:
        return WritePlan(options, opened.info.table_id, "append", "spooled", from_arrow_schema(SCHEMA), (0, 1))


def task(batch_id: int = 0, transaction: str | None = None, *, may_be_replay: bool = True) -> TaskIdentity:
    return TaskIdentity(transaction or f"spark-{uuid.uuid4()}", batch_id, 0, may_be_replay=may_be_replay)


def rows(first: int, count: int = 100) -> list[pa.RecordBatch]:
    numbers = range(first, first + count)
    return [pa.record_batch([pa.array(numbers), pa.array([f"t{n}" for n in numbers])], schema=SCHEMA)]


def count_of(plan: WritePlan) -> int:
    with fluss.connect(plan.options.client.config()) as db:
        return int(db.scan(plan.options.table).num_rows)


@pytest.fixture
def added(plan: WritePlan) -> Callable[[], int]:
    """The number of rows that the table has gained."""
    before = count_of(plan)
    return lambda: count_of(plan) - before


def test_a_finished_batch_is_not_repeated(plan: WritePlan, added: Callable[[], int]) -> None:
    first = task()
    done = run_task(plan, first, rows(0))
    assert (done.rows, done.was_committed) == (100, False)
    commit(plan, [done])
    assert run_task(plan, first, rows(0)) == TaskDone(first, 0, was_committed=True)
    assert run_task(plan, task(1, first.transaction), rows(0)).rows == 100
    assert added() == 200


def test_a_finished_task_of_an_unfinished_batch_is_not_repeated(plan: WritePlan, added: Callable[[], int]) -> None:
    identity = task()
    done = run_task(plan, identity, rows(0))
    abort(plan, [done, None])
    assert run_task(plan, identity, rows(0)) == done
    assert added() == 100
    assert run_task(plan, identity, rows(1)).rows == 100, "other rows must be written"
    assert added() == 200
    with open_table(plan.options) as opened:
        markers = Markers(opened, identity.transaction, 0)
        assert markers.is_there(done.notes[0])
        commit(plan, [done])
        assert markers.is_committed()
        assert not markers.is_there(done.notes[0])


@pytest.fixture
def narrow() -> Iterator[Callable[..., WritePlan]]:
    """Plans for a table whose rows hold less than those of Spark."""
    name = f"narrow_{uuid.uuid4().hex[:8]}"
    target = running_target("embedded")
    columns = {"name": fluss.DataTypes.char(3), "at": fluss.DataTypes.time(6)}
    builder = fluss.Schema.builder()
    for column, data_type in columns.items():
        builder = builder.column(column, data_type)
    with fluss.connect(target.config()) as db:
        db.create_database(name)
        db.create_table(f"{name}.t", builder.build(), properties={"table.log.format": "INDEXED"})

    def plan(way: Way, **more: str) -> WritePlan:
        given = {"bootstrap.servers": target.bootstrap_servers, "table": f"{name}.t", "client.writer.batch-size": "1kb"}
        made = plan_write(
            parse_options({**given, **more}),
            StructType([StructField("name", StringType()), StructField("at", TimeType(6))]),
            overwrite=False,
            is_stream=False,
        )
        return replace(made, way=way)

    yield plan
    close_all()


def narrow_rows(name: str, micros: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"name": ["abc"] * 999 + [name], "at": pa.array([micros] * 1000, pa.time64("us"))})


@pytest.mark.parametrize("way", ["spooled", "staged"])
def test_a_value_that_rows_cannot_hold_is_refused_before_any_write(narrow: Any, way: Way) -> None:
    plan = narrow(way)
    with pytest.raises(FlussError, match=r"'name' expects CHAR\(3\), got .* in row 1999: it has more bytes than 3"):
        run_task(plan, task(may_be_replay=False), [narrow_rows("abc"), narrow_rows("äöü")])
    assert count_of(plan) == 0


@pytest.mark.parametrize("way", ["spooled", "staged", "plain"])
def test_digits_that_rows_cannot_hold_are_cut_if_asked_for(narrow: Any, way: Way) -> None:
    with pytest.raises(FlussError, match=r"finer than the milliseconds .* the option onExtraDigits=truncate"):
        run_task(narrow(way), task(may_be_replay=False), [narrow_rows("abc", 1_234)])
    plan = narrow(way, onExtraDigits="truncate")
    commit(plan, [run_task(plan, task(may_be_replay=False), [narrow_rows("abc", 1_234)])])
    with fluss.connect(plan.options.client.config()) as db:
        assert db.scan(plan.options.table)["at"].cast(pa.int64()).unique().to_pylist() == [1_000]


def test_batch_jobs_leave_nothing_behind(plan: WritePlan) -> None:
    identity = task(may_be_replay=False)
    done = run_task(plan, identity, rows(0))
    commit(plan, [done])
    with open_table(plan.options) as opened:
        markers = Markers(opened, identity.transaction, 0)
        assert not markers.is_committed()
        assert not markers.is_there(done.notes[0])
        assert not any(markers.is_there(note) for note in markers.claim_ids(0))


def test_a_query_may_be_stopped_between_append_and_commit(plan: WritePlan) -> None:
    """Its driver dies, and it is started again only weeks later: the note about its rows still exists."""
    done = run_task(plan, task(), rows(0))
    request = pb.GetProducerOffsetsRequest(producer_id=done.notes[0])
    with open_table(plan.options) as opened:
        answer = opened.run(opened.engine.call_coordinator(ApiKey.GET_PRODUCER_OFFSETS, request))
    assert answer.expiration_time > time.time() * 1000 + BATCH_MS * 0.99


def test_notes_are_bounded(plan: WritePlan) -> None:
    name = f"spark-{uuid.uuid4()}"
    for batch_id in range(4):
        commit(plan, [run_task(plan, task(batch_id, name), rows(0, 1))])
    with open_table(plan.options) as opened:
        there = [Markers(opened, name, batch_id).is_committed() for batch_id in range(5)]
    assert there == [False, False, True, True, False]


def test_nothing_is_appended_before_all_rows_have_arrived(plan: WritePlan, added: Callable[[], int]) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from rows(0)
        raise ValueError("the source broke")

    identity = task()
    with pytest.raises(ValueError, match="the source broke"):
        run_task(plan, identity, failing())
    assert added() == 0
    assert run_task(plan, identity, []).rows == 0
    assert run_task(plan, identity, rows(0)).rows == 100
    assert added() == 100


def test_two_attempts_at_once_append_once(
    plan: WritePlan, added: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is held in the middle of its append until the second one waits for it."""
    holding, waits = threading.Event(), threading.Event()
    appends = []

    def slow_append(*arguments: object) -> int:
        appends.append(1)
        holding.set()
        assert waits.wait(DEADLINE_SECONDS)
        return append(*arguments)  # type: ignore[arg-type]

    class Clock:
        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def sleep(seconds: float) -> None:
            waits.set()
            time.sleep(seconds)

    monkeypatch.setattr(spooled, "append", slow_append)
    monkeypatch.setattr(spooled, "time", Clock)
    identity = task()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(run_task, plan, identity, rows(0))
        assert holding.wait(DEADLINE_SECONDS)
        second = pool.submit(run_task, plan, identity, rows(0))
        assert first.result(DEADLINE_SECONDS) == second.result(DEADLINE_SECONDS)
    assert len(appends) == 1
    assert added() == 100


def test_an_append_that_outlasts_its_claim_is_not_done_twice(
    plan: WritePlan, added: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt appends for longer than a claim lasts; the second one comes after its normal end."""
    monkeypatch.setattr(append_claim, "CLAIM_MS", int(patience(6000)))
    monkeypatch.setattr(append_claim, "RENEWALS", 20)  # so a renewal may be late by nearly all of that time
    holding, go_on = threading.Event(), threading.Event()
    appends = []

    def slow_append(*arguments: object) -> int:
        appends.append(1)
        holding.set()
        assert go_on.wait(DEADLINE_SECONDS)
        return append(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(spooled, "append", slow_append)
    identity = task()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(run_task, plan, identity, rows(0))
        assert holding.wait(DEADLINE_SECONDS)
        ended = time.monotonic() + patience(6.6)
        second = pool.submit(run_task, plan, identity, rows(0))
        wait_until(lambda: len(appends) > 1 or time.monotonic() > ended, "the end of a claim that is not renewed")
        go_on.set()
        assert first.result(DEADLINE_SECONDS) == second.result(DEADLINE_SECONDS)
    assert len(appends) == 1
    assert added() == 100


def test_a_failed_append_gives_its_claim_back(plan: WritePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> int:
        raise FlussError("disk full", ErrorCode.DISK_WRITE_LOCKED)

    identity = task()
    with monkeypatch.context() as patch:
        patch.setattr(spooled, "append", broken)
        with pytest.raises(FlussError, match="disk full"):
            run_task(plan, identity, rows(0))
    with open_table(plan.options) as opened:
        markers = Markers(opened, identity.transaction, 0)
        assert not any(markers.is_there(note) for note in markers.claim_ids(0))
    assert run_task(plan, identity, rows(0)).rows == 100
