"""Checkpoints of streaming queries of earlier versions: the queries continue where they were."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import fluss
from fluss.spark.sessions.connection_cache import close_all
from tests.golden.archives import ARCHIVES, Archive, restored
from tests.golden.contents import DATABASE, read_rows, shown
from tests.support.spark.stream_queries import ended, run_to_end


@pytest.fixture(params=ARCHIVES)
def archive(request: pytest.FixtureRequest) -> Iterator[Archive]:
    with restored(request.param) as archive:
        yield archive


def test_streams_continue_with_exactly_the_remaining_rows(archive: Archive, spark: SparkSession) -> None:
    """One query passes rows to Python. One copies a table: its last batch is in the copy, but not in Spark's log."""
    rows, streamed = archive.tables["log_stream"]["rows"], archive.expected["streamed"]
    remaining = [row for row in rows if row not in streamed]
    assert 0 < len(remaining) < len(rows) == len(remaining) + len(streamed)
    with fluss.embedded(archive.data) as cluster, fluss.connect(cluster.bootstrap_servers) as db:
        address = cluster.bootstrap_servers
        stream = spark.readStream.format("fluss").option("bootstrap.servers", address)
        frame = stream.load(f"{DATABASE}.log_stream")
        seen = run_to_end(frame, archive.root / "checkpoint")
        assert sorted(([shown(value) for value in row] for row in seen.rows), key=repr) == remaining

        assert read_rows(db, "log_copied") == streamed
        copy = frame.writeStream.format("fluss").option("bootstrap.servers", address)
        copy = copy.option("table", f"{DATABASE}.log_copied")
        copy = copy.option("checkpointLocation", str(archive.root / "copy-checkpoint"))
        ended(copy.trigger(availableNow=True).start())
        assert read_rows(db, "log_copied") == rows, "the repeated batch was not duplicated"
        close_all()
