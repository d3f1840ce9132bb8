"""`fluss.spark.tier` and `fluss tier --spark`: rounds as Spark jobs, without rows in the JVM."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import fluss
import fluss.spark
from fluss.errors import ErrorCode, FlussError
from tests.support.lake.tiered_tables import OPTIONS, REGIONAL, LakeTable, Watching, person
from tests.support.servers.targets import running_target
from tools.waiting import patience, wait_until


@pytest.fixture(scope="module")
def db() -> Iterator[fluss.Database]:
    with fluss.connect(running_target("standalone").config()) as db:
        yield db


def address(db: fluss.Database) -> str:
    return str(db.connection._session.config.bootstrap_servers)


def test_log_and_primary_key_tables(spark: SparkSession, db: fluss.Database) -> None:
    log = LakeTable(db, REGIONAL, partitions=("eu", "us"))
    keyed = LakeTable(db, primary_keys=["id"])
    rows = [person(n, region="eu" if n % 2 else "us") for n in range(100)]
    db.append(log.name, rows)
    db.upsert(keyed.name, [person(n) for n in range(100)])
    watching = Watching()
    reports = fluss.spark.tier(spark, address(db), [log.name, keyed.name], watcher=watching)
    assert sorted(report.rows for report in reports) == [100, 100]
    log.check(rows)
    keyed.check([person(n) for n in range(100)])
    db.append(log.name, [person(100, region="eu")])
    db.upsert(keyed.name, [person(n, name="new") for n in range(10)])
    db.delete(keyed.name, [{"id": n} for n in range(90, 100)])
    fluss.spark.tier(spark, address(db), [log.name, keyed.name], watcher=watching)
    log.check([*rows, person(100, region="eu")])
    keyed.check([*(person(n, name="new") for n in range(10)), *(person(n) for n in range(10, 90))])
    assert watching.errors == []


def test_a_large_bucket_is_several_tasks(spark: SparkSession, db: fluss.Database) -> None:
    table = LakeTable(db, bucket_count=1)
    for start in range(0, 30_000, 5_000):
        db.append(table.name, [person(n) for n in range(start, start + 5_000)])
    small = replace(OPTIONS, min_split_bytes=1, max_split_bytes=100_000)
    watching = Watching()
    (report,) = fluss.spark.tier(spark, address(db), table.name, tiering=small, watcher=watching)
    assert watching.splits > 1
    assert report.files == watching.splits
    assert sorted(row["__offset"] for row in table.lake_rows(["__offset"])) == list(range(30_000))


def test_as_a_service_with_the_address_of_the_session(spark: SparkSession, db: fluss.Database) -> None:
    table = LakeTable(db, properties={"table.datalake.freshness": "100 ms"})
    db.append(table.name, [person(n) for n in range(5)])
    spark.conf.set("spark.sql.fluss.bootstrap.servers", address(db))
    stop = threading.Event()
    outcome: list[Any] = []

    def serve() -> None:
        outcome.append(fluss.spark.tier(spark, every="100ms", tiering=OPTIONS, watcher=Watching(), stop=stop))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        wait_until(lambda: len(table.lake_rows()) == 5, "rows are in the lake")
        db.append(table.name, [person(5)])
        wait_until(lambda: len(table.lake_rows()) == 6, "the next one is, too")
    finally:
        stop.set()
        thread.join(patience(60))
        spark.conf.unset("spark.sql.fluss.bootstrap.servers")
    assert outcome == [[]], "it ended when it was stopped"
    table.check([person(n) for n in range(6)])


def test_invalid_arguments(spark: SparkSession, db: fluss.Database) -> None:
    with pytest.raises(FlussError, match="give only one of them"):
        fluss.spark.tier(spark, address(db), once=True, every="1m")
    with pytest.raises(FlussError, match="has no unit"):
        fluss.spark.tier(spark, address(db), every="1")
    with pytest.raises(FlussError, match="every must be greater than zero, got 0"):
        fluss.spark.tier(spark, address(db), every=0)
    table = LakeTable(db)
    elsewhere = {"uri": "sqlite:////nowhere/catalog.sqlite"}
    with pytest.raises(FlussError, match="/nowhere/catalog"):
        fluss.spark.tier(spark, address(db), table.name, lake_options=elsewhere, watcher=Watching())
    with pytest.raises(FlussError) as caught:
        fluss.spark.tier(spark, address(db), "fluss.nothing")
    assert caught.value.error_code == ErrorCode.TABLE_NOT_EXIST
