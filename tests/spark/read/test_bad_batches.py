"""Stored batches that cannot be read: Spark's errors name them, and with an option it skips them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import fluss
from fluss.client.decode.stored_batch import MIN_STORED_BYTES
from fluss.codec.arrow.compression import NO_COMPRESSION
from fluss.codec.batches.arrow_batch import encode_arrow_batch
from fluss.errors import FlussError
from fluss.spark.sessions.connection_cache import close_all
from tests.support.servers.log_cluster import LogCluster
from tests.support.spark.local_reads import plan_read, plan_stored
from tests.support.values.invalid_batches import raw_column

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string())])
NOT_UTF8 = raw_column(pa.string(), b"\0\0\0\0\2\0\0\0", b"\xff\xfe")
ROWS = MIN_STORED_BYTES // 4  # large enough to be handed to Java as it is stored
GOOD = [*range(ROWS), *range(2 * ROWS, 3 * ROWS)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogCluster]:
    with LogCluster(tmp_path_factory.mktemp("server")) as cluster:
        yield cluster
        close_all()


@pytest.fixture(scope="module")
def target(cluster: LogCluster) -> Any:
    """A target with a table of three batches, where the last value of the middle one is bad."""
    servers = cluster.cluster.bootstrap_servers
    with fluss.connect(servers) as db:
        db.create_table("bad", SCHEMA, properties={"table.log.arrow.compression.type": "NONE"}, bucket_count=1)
    for number in range(3):
        ids = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int32())
        names = pa.array(["x"] * ROWS)
        if number == 1:
            names = pa.concat_arrays([names[:-1], NOT_UTF8])
        batch = encode_arrow_batch(pa.RecordBatch.from_arrays([ids, names], schema=SCHEMA), 1, NO_COMPRESSION)
        answer = cluster.tablet.produce(cluster.table_id("bad"), 0, batch)
        assert not answer.HasField("error_code"), answer.error_message
    return cluster.cluster


def read_here(target: Any, **options: Any) -> pa.Table:
    return plan_read(target, "fluss.bad", **options).table()


ERROR = rf"fluss\.bad: the batch of offsets {ROWS} to {2 * ROWS - 1} cannot be read: .*the option onBadBatch=skip"


@pytest.mark.parametrize("options", [{}, {"columns": "name"}, {"mode": "changelog"}], ids=str)
def test_the_error_names_offsets_and_the_option(target: Any, options: dict[str, str]) -> None:
    with pytest.raises(FlussError, match=ERROR):
        read_here(target, **options)
    assert read_here(target, **options, onBadBatch="skip").num_rows == len(GOOD)


def test_skipped_batches_are_warnings(target: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="fluss"):
        assert read_here(target, onBadBatch="skip")["id"].to_pylist() == GOOD
    assert f"skipped offsets {ROWS} to {2 * ROWS - 1}: " in caplog.text
    assert read_here(target, columns="id").num_rows == 3 * ROWS, "the bad column is not read"


def test_batches_that_java_would_decode_are_checked_in_python(target: Any) -> None:
    end: dict[str, Any] = {"end": f'{{"0": {ROWS + 5}}}'}
    with pytest.raises(FlussError, match=r"the batch of offsets .* cannot be read: .*the option onBadBatch=skip"):
        plan_stored(target, "fluss.bad", **end).table()
    assert plan_stored(target, "fluss.bad").table().num_rows == 3, "Java gets three messages"
    assert plan_stored(target, "fluss.bad", onBadBatch="skip").table()["id"].to_pylist() == GOOD


def test_queries_and_streams_skip(spark: SparkSession, target: Any, tmp_path: Path) -> None:
    """Java does not check strings for UTF-8; with `skip` it does not get invalid ones."""
    options = {"bootstrap.servers": target.bootstrap_servers, "table": "fluss.bad", "onBadBatch": "skip"}
    batch = spark.read.format("fluss").options(**options).load()
    assert [row.id for row in batch.orderBy("id").collect()] == GOOD
    stream = spark.readStream.format("fluss").options(**options).load()
    query = (
        stream.writeStream.format("memory")
        .queryName("bad_batches")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert [row.id for row in spark.table("bad_batches").orderBy("id").collect()] == GOOD
