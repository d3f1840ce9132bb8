"""Batch reads of log tables: types, columns, splits, limits, ranges, on our server and on Apache Fluss."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, LessThan
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from fluss.errors import FlussError
from tests.support.spark.local_reads import Place, later_commit_time

EVENTS = pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string()), ("amount", pa.float64())])
ROWS = 1_000
BUCKETS = 2


def event_rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    columns = [list(numbers), [f"n{number % 10}" for number in numbers], [number * 0.5 for number in numbers]]
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, EVENTS, strict=True)], schema=EVENTS
    )


@pytest.fixture
def events(place: Place) -> str:
    """A log table with rows 0 to 999 in two buckets, in batches of 100."""
    path = place.create("events", EVENTS, bucket_count=BUCKETS, bucket_keys=["id"])
    for first in range(0, ROWS, 100):
        place.db.append(path, event_rows(first, 100))
    return path


def test_a_task_per_bucket_gives_every_row_once(place: Place, events: str) -> None:
    reading = place.read(events)
    assert reading.kinds == ["LogSplit"] * BUCKETS
    assert {task.split.range.bucket_id for task in reading.tasks} == set(range(BUCKETS))  # type: ignore[attr-defined]
    assert reading.rows("id") == event_rows(0, ROWS).to_pylist()


def test_columns_are_projected_in_the_wanted_order(place: Place, events: str) -> None:
    by_option = place.read(events, columns="amount, id")
    assert by_option.schema.names == ["amount", "id"]
    assert sum(by_option.column("amount")) == sum(number * 0.5 for number in range(ROWS))
    by_schema = place.read(events, schema=StructType([StructField("name", StringType())]))
    assert by_schema.column("name") == sorted(event_rows(0, ROWS).column("name").to_pylist())


def test_splits_by_rows_and_by_bytes(place: Place, events: str) -> None:
    by_rows = place.read(events, **{"scan.maxRecordsPerPartition": 70})
    assert len(by_rows.tasks) >= ROWS // 70
    assert all(task.split.range.count <= 70 for task in by_rows.tasks)  # type: ignore[attr-defined]
    assert by_rows.column("id") == list(range(ROWS))
    by_bytes = place.read(events, **{"scan.maxBytesPerPartition": 1_000})
    assert len(by_bytes.tasks) > BUCKETS
    assert by_bytes.column("id") == list(range(ROWS))


@pytest.mark.parametrize("limit", [0, 1, 150, 999, 5_000])
def test_a_limit_is_exact_and_counts_before_filters(place: Place, events: str, limit: int) -> None:
    condition = EqualTo(("name",), "n3")
    reading = place.read(events, limit=limit, filters=[condition])
    assert reading.left_to_spark == [condition]
    assert reading.table().num_rows == min(limit, ROWS)


def test_filters_are_evaluated_by_the_reader(place: Place, events: str) -> None:
    reading = place.read(
        events, filters=[GreaterThan(("amount",), 100.0), EqualTo(("name",), "n3")], columns="id,name,amount"
    )
    assert reading.left_to_spark == []
    assert reading.column("id") == [number for number in range(201, ROWS) if number % 10 == 3]


def test_filters_are_left_to_spark_when_others_may_get_the_same_reader(place: Place, events: str) -> None:
    """Spark keeps a planned reader and gives it to other queries of the same DataFrame, with other filters or none."""
    condition = EqualTo(("name",), "n3")
    reading = place.read(events, own_scan=False, filters=[condition])
    assert reading.left_to_spark == [condition]
    assert reading.column("id") == list(range(ROWS))


def test_explicit_offsets(place: Place, events: str) -> None:
    whole = place.read(events, mode="changelog")
    ends = {task.split.range.bucket_id: task.split.range.stop for task in whole.tasks}  # type: ignore[attr-defined]
    assert sum(ends.values()) == ROWS
    part = place.read(events, mode="changelog", start='{"0": 17}', end='{"0": 40, "1": 5}')
    assert part.column("_log_offset") == sorted([*range(17, 40), *range(5)])
    assert set(part.column("_change_type")) == {"insert"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"start": '{"7": 0}'}, "bucket 7"),
        ({"start": '{"2026": {"0": 0}}'}, "partition '2026'"),
        ({"start": '{"0": 999999}'}, "has offsets 0 to"),
        ({"end": '{"0": 999999}'}, "has offsets 0 to"),
        ({"start": '{"0": 20}', "end": '{"0": 10}'}, "must not exceed the end offset, got 20 and 10"),
        ({"start": "latest", "end": "earliest"}, "ends before it begins"),
        ({"start": "latest", "end": '{"0": 10}'}, r"must not exceed the end offset, got \d+ and 10"),
        ({"start": '{"0": 20}', "end": "earliest"}, "must not exceed the end offset, got 20 and 0"),
        ({"start": "timestamp:2000", "end": "timestamp:1000"}, "must be before its end"),
        ({"mode": "state"}, "no primary key"),
        ({"columns": "id,nothing"}, "unknown column 'nothing'"),
    ],
)
def test_invalid_options_are_refused_when_planning(
    place: Place, events: str, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(FlussError, match=reason):
        place.read(events, **options)


def test_ranges_may_be_empty(place: Place, events: str) -> None:
    """Neither a range without rows nor a time after an offset is an error."""
    for start, end in (("earliest", "earliest"), ("latest", "latest"), ("latest", "timestamp:1")):
        assert place.read(events, start=start, end=end).rows() == []


def test_a_schema_with_other_types_or_columns_is_refused(place: Place, events: str) -> None:
    with pytest.raises(FlussError, match=r"'id' of .* is bigint, not int"):
        place.read(events, schema=StructType([StructField("id", IntegerType())]))
    with pytest.raises(FlussError, match="unknown column 'Id'"):
        place.read(events, schema=StructType([StructField("Id", IntegerType())]))
    with pytest.raises(FlussError, match=r"_log_offset.*mode=changelog"):
        place.read(events, schema=StructType([StructField("_log_offset", IntegerType())]))


def test_time_ranges_are_exact_on_the_commit_time(place: Place) -> None:
    path = place.create("timed", EVENTS, bucket_count=1)
    for first in range(4):
        place.db.append(path, event_rows(first, 1))
        later_commit_time()
    changes = place.read(path, mode="changelog").rows("_log_offset")
    times = [int(row["_commit_timestamp"].timestamp() * 1000) for row in changes]
    assert len(set(times)) == 4
    assert place.read(path, start=f"timestamp:{times[1]}", end=f"timestamp:{times[3]}").column("id") == [1, 2]
    assert place.read(path, start=f"timestamp:{times[1] + 1}").column("id") == [2, 3]
    incremental = {"scan.incremental.start.timestamp": times[0], "scan.incremental.end.timestamp": times[2]}
    assert place.read(path, **incremental).column("id") == [0, 1]
    assert place.read(path, limit=1, **incremental).column("id") == [0]
    later = times[3] + 3_600_000
    assert place.read(path, start="timestamp:0", end=f"timestamp:{later}").column("id") == [0, 1, 2, 3]
    assert place.read(path, start=f"timestamp:{later}").rows() == []


@pytest.mark.parametrize("skew_seconds", [-60, 60])
def test_only_the_clock_of_the_server_counts(place: Place, monkeypatch: pytest.MonkeyPatch, skew_seconds: int) -> None:
    path = place.create("timed", EVENTS, bucket_count=2)
    place.db.append(path, event_rows(0, 1))
    later_commit_time()
    moment = int(time.time() * 1000)
    place.db.append(path, event_rows(1, 2))
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + skew_seconds)
    assert place.read(path, start=f"timestamp:{moment}").column("id") == [1, 2]
    assert place.read(path, **{"scan.incremental.start.timestamp": moment}).column("id") == [1, 2]
    assert place.read(path, end=f"timestamp:{moment}").column("id") == [0]
    assert place.read(path, start=f"timestamp:{moment + 30_000}").rows() == []


def test_rows_that_arrive_after_planning_belong_to_the_next_read(place: Place, events: str) -> None:
    reading = place.read(events)
    place.db.append(events, event_rows(ROWS, 50))
    assert reading.column("id") == list(range(ROWS))
    assert place.read(events).column("id") == list(range(ROWS + 50))


def test_rows_from_before_a_column_was_added_have_null_there(place: Place, events: str) -> None:
    place.db.alter_table(events, add_columns={"note": pa.string()})
    more = event_rows(ROWS, 1).append_column("note", pa.array(["new"]))
    place.db.append(events, more)
    found = place.read(events, columns="id,note").rows("id")
    assert [row["note"] for row in found] == [None] * ROWS + ["new"]


def test_counting_needs_no_rows(place: Place, events: str) -> None:
    """Offsets alone need no request for the log."""
    reading = place.read(events, mode="changelog", columns="_log_offset")
    assert reading.table().num_rows == ROWS
    last = place.read(events, mode="changelog", columns="_log_offset,_commit_timestamp")
    assert last.table().num_rows == ROWS


def test_an_empty_table_has_no_tasks(place: Place) -> None:
    path = place.create("empty", EVENTS, bucket_count=3)
    reading = place.read(path)
    assert reading.tasks == []
    assert reading.rows() == []


def test_partitions_are_chosen_by_filters(place: Place) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string()), ("hour", pa.int32())])
    path = place.create("parts", schema, bucket_count=1, partition_keys=["day", "hour"])
    for number, (day, hour) in enumerate([("d1", 2), ("d1", 10), ("d2", 2)]):
        place.db.create_partition(path, {"day": day, "hour": str(hour)})
        place.db.append(path, [{"id": number, "day": day, "hour": hour}])
    assert place.read(path).column("id") == [0, 1, 2]
    one_day = place.read(path, filters=[EqualTo(("day",), "d1"), GreaterThanOrEqual(("hour",), 3)])
    assert (len(one_day.tasks), one_day.left_to_spark, one_day.column("id")) == (1, [], [1])
    assert place.read(path, filters=[EqualTo(("day",), "d9")]).tasks == []
    mixed = place.read(path, filters=[EqualTo(("day",), "d1"), LessThan(("id",), 1)])
    assert (len(mixed.tasks), mixed.column("id")) == (2, [0])
    part = place.read(path, start='{"d1$2": {"0": 1}}', filters=[EqualTo(("day",), "d1")])
    assert part.column("id") == [1]
