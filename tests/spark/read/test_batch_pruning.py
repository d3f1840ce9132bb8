"""Filters of log tables reach the server: batches whose values cannot match stay there."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import Tables, new_tables, setting
from tests.support.servers.counted_server import Relay, counted_server

SCHEMA = pa.schema([("id", pa.int64()), ("payload", pa.binary())])
BATCHES = 20
BATCH_ROWS = 100
PAYLOAD_BYTES = 500
BATCH_BYTES = BATCH_ROWS * PAYLOAD_BYTES
"""A lower bound: the payload cannot be compressed."""
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def counted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tables, Relay]]:
    """A table `t` in one bucket: batch number n has the ids from n * BATCH_ROWS on."""
    with counted_server(tmp_path_factory.mktemp("server")) as (target, relay):
        for tables in new_tables(target, spark):
            path = tables.create("t", SCHEMA, bucket_count=1, properties={"table.statistics.columns": "id"})
            for first in range(0, BATCHES * BATCH_ROWS, BATCH_ROWS):
                rows = {
                    "id": range(first, first + BATCH_ROWS),
                    "payload": [os.urandom(PAYLOAD_BYTES) for _ in range(BATCH_ROWS)],
                }
                tables.db.append(path, pa.table(rows, SCHEMA))
            yield tables, relay


def read_ids(counted: tuple[Tables, Relay], condition: str) -> tuple[list[int], float]:
    """The ids of a query for whole rows, and the bytes that servers sent for it, in batches."""
    tables, relay = counted
    before = relay.answered_bytes
    rows = tables.read("t").where(condition).collect()
    assert all(len(row.payload) == PAYLOAD_BYTES for row in rows)
    return sorted(row.id for row in rows), (relay.answered_bytes - before) / BATCH_BYTES


@pytest.mark.parametrize(
    ("condition", "ids", "batches"),
    [
        ("id >= 1190 AND id < 1210", [*range(1190, 1210)], 2),
        ("id IN (150, 1250)", [150, 1250], 2),
        ("id > 5000", [], 0),
    ],
)
def test_batches_that_cannot_match_are_not_sent(
    counted: tuple[Tables, Relay], condition: str, ids: list[int], batches: int
) -> None:
    found, sent = read_ids(counted, condition)
    assert found == ids
    assert batches <= sent < batches + 1


def test_without_push_down_everything_is_sent(counted: tuple[Tables, Relay]) -> None:
    with setting(counted[0].spark, PUSH_DOWN, "false"):
        found, sent = read_ids(counted, "id >= 1190 AND id < 1210")
    assert found == list(range(1190, 1210))
    assert sent >= BATCHES
    everything, sent = read_ids(counted, "true")
    assert everything == list(range(BATCHES * BATCH_ROWS))
    assert sent >= BATCHES
