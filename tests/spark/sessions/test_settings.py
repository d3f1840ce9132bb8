"""Settings that are passed on have an effect: options of writers, of the cluster, of lake tables."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import fluss
import fluss.spark
from tests.spark.conftest import Tables
from tests.support.lake.tiered_tables import tiering_service
from tests.support.lake.union_reads import SERVER
from tests.support.spark.lake_reads import lake_server

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.mark.all
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_the_batch_size_of_writers(tables: Tables, spark: SparkSession, delivery: str) -> None:
    """One bucket and one task; a batch of the log reaches the client as one chunk."""
    frame = spark.range(0, 20_000, 1, 1).selectExpr("id", "concat('name-', id) name")
    stored = {}
    for name, options in {"plain": {}, "small": {"client.writer.batch-size": 20_000}}.items():
        tables.create(name, SCHEMA, bucket_count=1)
        tables.write(frame, name, {"delivery": delivery, **options})
        ids = tables.contents(name).column("id")
        assert sorted(ids.to_pylist()) == list(range(20_000))
        stored[name] = ids.num_chunks
    assert stored["small"] >= 5 * stored["plain"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fluss.Database]:
    """A server with a lake and its own options."""
    with lake_server(tmp_path_factory.mktemp("server")) as db:
        yield db


@pytest.fixture
def options(server: fluss.Database) -> dict[str, str]:
    return {"bootstrap.servers": server.connection.config.bootstrap_servers}


def test_options_of_the_cluster_are_reset(spark: SparkSession, options: dict[str, str]) -> None:
    """Options are reset to the value of the server's configuration, or removed."""
    configured, other = "kv.snapshot.interval", "kv.rocksdb.shared-rate-limiter.bytes-per-sec"

    def values() -> dict[str, str | None]:
        entries = fluss.spark.get_cluster_configs(spark, [configured, other], options=options)
        return {entry.name: entry.value for entry in entries}

    before = values()
    assert before == {configured: SERVER[configured]}
    fluss.spark.set_cluster_configs(spark, {configured: "7min", other: "1gb"}, options=options)
    assert values() == {configured: "7min", other: "1gb"}
    fluss.spark.reset_cluster_configs(spark, [other], options=options)
    assert values() == {configured: "7min"}
    fluss.spark.reset_cluster_configs(spark, [configured, other], options=options)
    assert values() == before


@pytest.mark.all
def test_a_lake_table_by_its_properties(spark: SparkSession, server: fluss.Database, options: dict[str, str]) -> None:
    """The server assigns the table to tiering services, and they find its lake."""
    properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "30s"}
    schema = "id BIGINT, name STRING"
    fluss.spark.create_table(spark, "fluss.watched", schema, properties=properties, options=options)
    fluss.spark.create_table(spark, "fluss.plain", schema, options=options)
    assert properties.items() <= server.info("fluss.watched").properties.items()
    server.append("fluss.watched", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    with tiering_service(server) as service:
        (report,) = service.once()
    assert not isinstance(report, fluss.FlussError)
    assert (str(report.path), report.error) == ("fluss.watched", None)
    in_lake = spark.read.format("fluss").options(**options).load("fluss.watched$lake")
    assert sorted(row.id for row in in_lake.collect()) == [1, 2]
