"""Staged appends as Spark uses them: tasks, commits and aborts in every order that Spark may call them.

Tasks and commits are called here without Spark, each with its own writer, as in Spark.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import fluss
from fluss.codec.arrow.types import from_arrow_schema
from fluss.errors import FlussError
from fluss.spark.options.parsing import FlussOptions, parse_options
from fluss.spark.sessions.connection_cache import close_all
from fluss.spark.write import stream_writer
from fluss.spark.write.batch_writer import FlussBatchWriter, build_writer
from fluss.spark.write.messages import BATCH_JOB_NUMBER, TaskDone, TaskIdentity
from fluss.spark.write.plan import WritePlan
from fluss.spark.write.stream_writer import FlussStreamWriter, build_stream_writer
from fluss.spark.write.task import run_task
from tests.support.servers.targets import Target, running_target

ARROW_SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
SPARK_SCHEMA = StructType([StructField("id", LongType()), StructField("text", StringType())])


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    yield running_target("standalone")
    close_all()


@pytest.fixture
def options(target: Target) -> FlussOptions:
    name = f"staged_{uuid.uuid4().hex[:8]}"
    with fluss.connect(target.config()) as db:
        db.create_database(name)
        db.create_table(f"{name}.events", ARROW_SCHEMA, bucket_count=3)
    return parse_options({"bootstrap.servers": target.bootstrap_servers, "table": f"{name}.events"})


def writer(options: FlussOptions) -> FlussStreamWriter:
    """A writer as it arrives in another process."""
    made = build_stream_writer(options, SPARK_SCHEMA, False)
    return cast(FlussStreamWriter, pickle.loads(pickle.dumps(made)))


def rows(first: int, count: int = 100) -> Iterator[pa.RecordBatch]:
    numbers = range(first, first + count)
    return iter([pa.record_batch([pa.array(numbers), pa.array([f"t{n}" for n in numbers])], schema=ARROW_SCHEMA)])


class Query:
    """Runs tasks of one query."""

    def __init__(self, options: FlussOptions, patch: pytest.MonkeyPatch) -> None:
        self.options = options
        self._patch = patch
        self._name = f"spark-{uuid.uuid4()}"

    def task(self, batch_id: int, partition_id: int, batches: Iterator[pa.RecordBatch]) -> TaskDone:
        """The message of a task to the driver."""
        identity = TaskIdentity(self._name, batch_id, partition_id, may_be_replay=True)
        self._patch.setattr(stream_writer, "stream_identity", lambda: identity)
        done = writer(self.options).write(batches)
        return cast(TaskDone, pickle.loads(pickle.dumps(done)))

    def ids(self) -> list[int]:
        with fluss.connect(self.options.client.config()) as db:
            return sorted(db.scan(self.options.table).column("id").to_pylist())


@pytest.fixture
def query(options: FlussOptions, monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(options, monkeypatch)


def test_rows_appear_with_the_commit(query: Query) -> None:
    done = [query.task(0, 0, rows(0)), query.task(0, 1, rows(100)), query.task(0, 2, iter([]))]
    assert query.ids() == []
    writer(query.options).commit(done, 0)
    assert query.ids() == list(range(200))


def test_an_abort_after_a_commit_removes_nothing(query: Query) -> None:
    """Spark aborts if a commit raised, even if it raised after the rows were committed."""
    done = [query.task(0, 0, rows(0))]
    writer(query.options).commit(done, 0)
    writer(query.options).abort(done, 0)
    writer(query.options).commit(done, 0)
    assert query.ids() == list(range(100))


def test_an_abort_drops_rows_that_are_not_committed(query: Query) -> None:
    done = [query.task(0, 0, rows(0))]
    writer(query.options).abort([None, *done], 0)
    with pytest.raises(FlussError, match="staged"):
        writer(query.options).commit(done, 0)
    assert query.ids() == []
    writer(query.options).commit([query.task(0, 0, rows(0))], 0)
    assert query.ids() == list(range(100))


def test_attempts_that_spark_does_not_report_are_not_seen(query: Query) -> None:
    slow = query.task(0, 0, rows(0))
    fast = query.task(0, 0, rows(0))
    writer(query.options).commit([fast], 0)
    assert query.ids() == list(range(100))
    writer(query.options).commit([slow], 0)
    assert query.ids() == list(range(100))


def test_a_task_that_fails_leaves_nothing(query: Query) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from rows(0)
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="the source broke"):
        query.task(0, 0, failing())
    writer(query.options).commit([query.task(0, 0, rows(0))], 0)
    assert query.ids() == list(range(100))


def test_a_committed_batch_is_not_even_read_again(query: Query) -> None:
    def never() -> Iterator[pa.RecordBatch]:
        raise AssertionError("a row was read")
        yield

    writer(query.options).commit([query.task(0, 0, rows(0))], 0)
    again = query.task(0, 0, never())
    assert (again.was_committed, again.rows, again.attempt) == (True, 0, None)
    writer(query.options).commit([again], 0)
    writer(query.options).commit([query.task(1, 0, rows(100))], 1)
    assert query.ids() == list(range(200))


def test_a_checkpoint_that_was_reset_is_noticed(query: Query) -> None:
    """Spark only repeats its newest batch: with an older number, these would be other rows under a used number."""
    for number in range(3):
        writer(query.options).commit([query.task(number, 0, rows(100 * number))], number)
    with pytest.raises(FlussError, match=r"up to number 2, but this is number 1: its checkpoint was reset"):
        query.task(1, 0, rows(700))
    assert query.ids() == list(range(300))


def test_commits_and_aborts_without_messages(query: Query) -> None:
    writer(query.options).commit([], 0)
    writer(query.options).commit([query.task(0, 0, iter([]))], 0)
    writer(query.options).abort([], 0)
    writer(query.options).abort([None, None], 0)
    writer(query.options).commit([query.task(0, 0, rows(0))], 0)
    assert query.ids() == list(range(100))


def test_a_batch_job_that_is_aborted_leaves_nothing_behind(options: FlussOptions) -> None:
    """Not even rows of attempts that the driver does not know."""
    made = build_writer(options, SPARK_SCHEMA, False)
    assert isinstance(made, FlussBatchWriter)
    identity = TaskIdentity(made._job, BATCH_JOB_NUMBER, 0, may_be_replay=False)
    killed = run_task(made._plan, identity, rows(0))
    done = run_task(made._plan, identity, rows(0))
    pickle.loads(pickle.dumps(made)).abort([None])
    for message in (killed, done):
        with pytest.raises(FlussError, match="staged"):
            made.commit([message])
    made.abort([done])


def test_a_batch_job_is_never_mistaken_for_a_repetition(options: FlussOptions) -> None:
    made = build_writer(options, SPARK_SCHEMA, False)
    assert isinstance(made, FlussBatchWriter)
    identity = TaskIdentity(made._job, BATCH_JOB_NUMBER, 0, may_be_replay=False)
    made.commit([run_task(made._plan, identity, rows(0))])
    with pytest.raises(FlussError, match=r"the rows were not written .* committed before"):
        made.commit([run_task(made._plan, identity, rows(100))])


def test_an_abort_hides_no_error(query: Query, target: Target) -> None:
    done = [query.task(0, 0, rows(0))]
    with fluss.connect(target.config()) as db:
        db.drop_table(query.options.table)
        writer_of_dropped = FlussStreamWriter(writer_plan(query.options, done))
        writer_of_dropped.abort(done, 0)
        with pytest.raises(FlussError, match=r"not exist|dropped"):
            writer_of_dropped.commit(done, 0)


def writer_plan(options: FlussOptions, done: list[TaskDone]) -> WritePlan:
    """A plan that was made while the table existed."""
    attempt = done[0].attempt
    assert attempt is not None
    return WritePlan(options, attempt.table_id, "append", "staged", from_arrow_schema(ARROW_SCHEMA), (0, 1))
