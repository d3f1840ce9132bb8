"""Primary-key buckets in several tasks: every row once, all of one moment, whatever changes during the read."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import GreaterThan
from pyspark.sql.functions import spark_partition_id

import fluss
from fluss.client.net.rpc import RpcConnection
from fluss.client.state.key_ranges import ALL_KEYS
from fluss.errors import ErrorCode, FlussError
from fluss.protocol.api_keys import ApiKey
from fluss.spark.read.splits import StateSplit, Task
from tests.support.servers.restartable import restartable_server
from tests.support.servers.targets import running_target
from tests.support.spark.local_reads import Place, Reading, new_place

SCHEMA = fluss.Schema(pa.schema([("id", pa.int64()), ("version", pa.int32()), ("text", pa.string())]), ["id"])
ROWS = 6_000
BY_ROWS = {"scan.maxRecordsPerPartition": 1_000}


@pytest.fixture
def place() -> Iterator[Place]:
    """A database on the server that can scan ranges of keys."""
    with new_place(running_target("standalone")) as place:
        yield place


def versions(numbers: Iterable[int], version: int) -> list[dict[str, Any]]:
    return [{"id": number, "version": version, "text": f"text {number}"} for number in numbers]


def made(place: Place, *, buckets: int = 1, **properties: str) -> str:
    """Rows 0 to 5999 with version 1."""
    path = place.create("pieces", SCHEMA, bucket_count=buckets, properties=properties)
    place.db.upsert(path, versions(range(ROWS), 1))
    return path


def states(reading: Reading) -> list[StateSplit]:
    assert reading.kinds == ["StateSplit"] * len(reading.tasks)
    return [task.split for task in reading.tasks if isinstance(task.split, StateSplit)]


def batches_of(reading: Reading, task: Task) -> Iterator[Any]:
    return iter(reading.reader.read(task))


def test_by_rows_and_by_bytes(place: Place) -> None:
    path = made(place, buckets=2)
    by_rows = place.read(path, **BY_ROWS)
    assert len(by_rows.tasks) in (6, 7, 8)  # each bucket has about 3,000 rows
    assert [split.bucket_id for split in states(by_rows)][:2] == [0, 1], "concurrent tasks read different buckets"
    assert by_rows.rows("id") == versions(range(ROWS), 1)
    assert max(sum(batch.num_rows for batch in batches_of(by_rows, task)) for task in by_rows.tasks) <= 1_100
    by_bytes = place.read(path, **{"scan.maxBytesPerPartition": 50_000})
    assert len(by_bytes.tasks) > 4
    assert by_bytes.rows("id") == versions(range(ROWS), 1)
    some = place.read(path, filters=[GreaterThan(("id",), ROWS - 10)], **BY_ROWS)
    assert some.column("id") == list(range(ROWS - 9, ROWS))


def test_pieces_show_the_moment_of_planning(place: Place) -> None:
    path = made(place)
    reading = place.read(path, **BY_ROWS)
    assert {split.offset for split in states(reading)} == {ROWS}
    chance = random.Random(5)
    batches = reading.batches()
    found = next(batches).to_pylist()
    for round_number in range(2, 5):
        changed = chance.sample(range(ROWS + 500), 700)
        place.db.upsert(path, versions(changed, round_number))
        place.db.delete(path, [{"id": number} for number in chance.sample(range(ROWS), 300)])
        found += next(batches).to_pylist()
    for batch in batches:
        found += batch.to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == versions(range(ROWS), 1)
    assert place.read(path, **BY_ROWS).rows("id") == place.read(path).rows("id") != found


@pytest.mark.all
def test_a_kill_in_the_middle_of_pieces() -> None:
    server = restartable_server("standalone")
    with new_place(server.target) as place:
        path = made(place)
        reading = place.read(path, **BY_ROWS)
        found: list[dict[str, Any]] = []
        for number, task in enumerate(reading.tasks):
            batches = batches_of(reading, task)
            found += next(batches).to_pylist()
            place.db.upsert(path, versions(range(number, ROWS, 7), 2))
            if number in (1, 4):
                server.goes_away()  # kill -9
                server.comes_back()
            for batch in batches:
                found += batch.to_pylist()
        assert sorted(found, key=lambda row: row["id"]) == versions(range(ROWS), 1)


def test_reads_with_one_task_per_bucket(place: Place) -> None:
    path = made(place)

    def are_whole(reading: Reading) -> bool:
        return [(split.key_range, split.offset) for split in states(reading)] == [(ALL_KEYS, None)]

    assert are_whole(place.read(path))  # small
    assert are_whole(place.read(path, own_scan=False, **BY_ROWS))  # a later query may reuse this plan
    assert place.read(path, limit=10, **BY_ROWS).kinds == ["LimitedSplit"]
    assert [split.key_range for split in states(place.read(path, end=f'{{"0": {ROWS}}}', **BY_ROWS))] == [ALL_KEYS]
    without_images = place.create("wal", SCHEMA, bucket_count=1, properties={"table.changelog.image": "WAL"})
    place.db.upsert(without_images, versions(range(ROWS), 1))
    assert are_whole(place.read(without_images, **BY_ROWS))


@pytest.mark.parametrize("server", ["apache"])
def test_servers_that_cannot_scan_ranges(server: str) -> None:
    with new_place(running_target(server)) as place:
        reading = place.read(made(place), **BY_ROWS)
        assert [split.key_range for split in states(reading)] == [ALL_KEYS]
        assert reading.rows("id") == versions(range(ROWS), 1)


def test_a_piece_is_never_read_as_a_whole_bucket(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ignores ranges would return all rows to every task."""
    reading = place.read(made(place), **BY_ROWS)
    served = RpcConnection.version

    def older(self: Any, api_key: int) -> int:
        if api_key == ApiKey.SCAN_KV_RANGE:
            raise FlussError("not served", ErrorCode.UNSUPPORTED_VERSION)
        return served(self, api_key)

    monkeypatch.setattr(RpcConnection, "version", older)
    with pytest.raises(FlussError, match="not served"):
        reading.rows()


def test_spark_reads_pieces(spark: SparkSession, place: Place) -> None:
    path = made(place, buckets=2)
    options = {"bootstrap.servers": place.target.bootstrap_servers, **{key: str(n) for key, n in BY_ROWS.items()}}
    frame = spark.read.format("fluss").options(**options).load(path)
    assert frame.select(spark_partition_id()).distinct().count() in (6, 7, 8)
    found = [row.asDict() for row in frame.orderBy("id").collect()]
    assert found == versions(range(ROWS), 1)
    place.db.upsert(path, versions(range(10), 2))
    assert frame.where("version = 2").count() == 10, "another query of the frame shows a later moment"
    assert sum(row.version == 2 for row in frame.collect()) == 10
    place.db.upsert(path, versions(range(10), 3))
    assert sum(row.version == 2 for row in frame.collect()) == 10, "Spark keeps the plan of the same query"
