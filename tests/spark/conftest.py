"""One Spark session and one server for all tests here; every test has its own database.

The session runs in this process's JVM with two cores and a small heap. Tests that need other settings start their own
process. Servers are those of `tests.support.servers.targets`.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import fluss
import fluss.spark
from tests.support.runner.time_limits import TestHangsError
from tests.support.servers.targets import Target, running_target
from tests.support.spark.local_reads import Place, new_place

TEST_HEAP = "1g"
SHUFFLE_PARTITIONS = "2"
STOP_TIMEOUT = "100s"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of the whole run, as a user gets it."""
    session = fluss.spark.session(
        app_name="tests",
        master="local[2]",
        config={
            "spark.driver.memory": TEST_HEAP,
            "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS,
            "spark.log.level": "ERROR",
            "spark.sql.streaming.stopTimeout": STOP_TIMEOUT,  # otherwise `query.stop()` may wait without end
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        },
    )
    yield session
    session.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Clean up after a test that hung: it is ended in the middle of a call to Java."""
    try:
        return (yield)
    except TestHangsError:
        running: SparkSession | None = SparkSession._instantiatedSession  # makes no call, unlike getActiveSession()
        if running is not None:
            _clear_away(running)
        raise


def _clear_away(session: SparkSession) -> None:
    """Replace the connection, which would give a pending answer to the next call; cancel tasks, which keep cores."""
    context: Any = session.sparkContext
    client = context._gateway._gateway_client
    connection = client.get_thread_connection()
    if connection is not None:
        connection.close()
    client.thread_connection = threading.local()
    sessions: Any = SparkSession._get_j_spark_session_class(session._jvm)
    sessions.setActiveSession(session._jsparkSession)  # the new connection has a new Java thread
    for query in session.streams.active:
        query.stop()
    context.cancelAllJobs()


@contextmanager
def setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """Change a setting of the session for the `with` block."""
    before = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.unset(key) if before is None else spark.conf.set(key, before)


@dataclass(frozen=True)
class Tables:
    """A database of one test on a server: tables by their plain names, for the client and for Spark."""

    target: Target
    db: fluss.Database
    name: str
    spark: SparkSession

    def path(self, table: str) -> str:
        """`database.table`."""
        return f"{self.name}.{table}"

    def options(self, **extra: Any) -> dict[str, str]:
        """The options of `format("fluss")` for this server."""
        return {"bootstrap.servers": self.target.bootstrap_servers, **{key: str(value) for key, value in extra.items()}}

    def create(self, table: str, schema: pa.Schema | fluss.Schema, **options: Any) -> str:
        """Create a table and return its path; options as for `Database.create_table`."""
        self.db.create_table(self.path(table), schema, **options)
        return self.path(table)

    def read(self, table: str, options: dict[str, Any] | None = None, schema: Any = None) -> DataFrame:
        """A batch read of the table."""
        reader = self.spark.read.format("fluss").options(**self.options(**(options or {})))
        if schema is not None:
            reader = reader.schema(schema)
        return reader.load(self.path(table))

    def stream(self, table: str, options: dict[str, Any] | None = None, schema: Any = None) -> DataFrame:
        """A streaming read of the table."""
        reader = self.spark.readStream.format("fluss").options(**self.options(**(options or {})))
        if schema is not None:
            reader = reader.schema(schema)
        return reader.load(self.path(table))

    def write(self, frame: DataFrame, table: str, options: dict[str, Any] | None = None) -> None:
        """Append the rows of a DataFrame to the table."""
        writer = frame.write.format("fluss").mode("append").options(**self.options(**(options or {})))
        writer.option("table", self.path(table)).save()

    def contents(self, table: str) -> pa.Table:
        """The rows that the client reads, with which Spark is compared."""

        async def read() -> pa.Table:
            return await (await self.db.connection.get_table(self.path(table))).to_arrow()

        return asyncio.run(read())

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows that the client reads, as dicts."""
        return [dict(row) for row in self.contents(table).to_pylist()]


def new_tables(target: Target, spark: SparkSession) -> Iterator[Tables]:
    """A new database; for fixtures of other scopes."""
    name = f"db_{uuid.uuid4().hex[:12]}"
    with fluss.connect(target.config(), database=name) as db:
        db.create_database(name)
        yield Tables(target, db, name, spark)


@pytest.fixture
def tables(spark: SparkSession) -> Iterator[Tables]:
    """A new database on our server, two tablets."""
    yield from new_tables(running_target("standalone"), spark)


@pytest.fixture(scope="module")
def module_tables(spark: SparkSession) -> Iterator[Tables]:
    """A new database on our server for all tests of a module."""
    yield from new_tables(running_target("standalone"), spark)


@pytest.fixture(params=["apache"])
def apache_tables(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[Tables]:
    """A new database on Apache Fluss, which is part of the test's name; skips if it is not available."""
    yield from new_tables(running_target(request.param), spark)


@pytest.fixture(params=["standalone", "apache"])
def any_tables(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[Tables]:
    """A new database, once on our server and once on Apache Fluss."""
    yield from new_tables(running_target(request.param), spark)


@pytest.fixture
def rows_of() -> Callable[[DataFrame], list[tuple[Any, ...]]]:
    """The rows of a DataFrame, sorted, as plain tuples."""
    return lambda frame: sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.fixture(params=["standalone", "apache"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A new database for reads that run in this process, without those of Spark."""
    with new_place(running_target(request.param)) as place:
        yield place
