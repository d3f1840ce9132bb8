"""Batch reads of primary-key tables: current state, past states, windows of changes, changelogs, lookups."""

from __future__ import annotations

import datetime
import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull
from pyspark.sql.types import StringType, StructField, StructType

import fluss
from fluss.errors import FlussError
from tests.support.servers.targets import running_target
from tests.support.spark.local_reads import Place, later_commit_time, new_place

USERS = fluss.Schema(pa.schema([("id", pa.int64()), ("name", pa.string()), ("age", pa.int32())]), ["id"])


def users(*numbers: int, age: int = 0) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"user {number}", "age": age + number} for number in numbers]


def latest(place: Place, path: str) -> dict[int, int]:
    count = place.db.info(path).num_buckets
    admin = place.db.connection.get_admin()
    return dict(place.db._session.run(admin._calls.list_offsets(admin_path(path), None, range(count), LATEST)))


LATEST = fluss.OffsetSpec.latest()


def admin_path(path: str) -> fluss.TablePath:
    return fluss.TablePath(*path.split("."))


@pytest.fixture
def table(place: Place) -> str:
    """Users 0 to 199: 0 to 49 were updated, every tenth was deleted."""
    path = place.create("users", USERS, bucket_count=2)
    place.db.upsert(path, users(*range(200)))
    place.db.upsert(path, users(*range(50), age=1000))
    place.db.delete(path, [{"id": number} for number in range(0, 200, 10)])
    return path


EXPECTED: list[dict[str, Any]] = [
    {"id": number, "name": f"user {number}", "age": number + (1000 if number < 50 else 0)}
    for number in range(200)
    if number % 10
]


def test_the_current_rows(place: Place, table: str) -> None:
    reading = place.read(table)
    assert reading.kinds == ["StateSplit"] * 2
    assert reading.rows("id") == EXPECTED
    only_names = place.read(table, schema=StructType([StructField("name", StringType())]))
    assert only_names.column("name") == sorted(row["name"] for row in EXPECTED)


def test_filters_see_the_current_row_only(place: Place, table: str) -> None:
    """Neither an older row that matches nor a deleted one must reappear."""
    low = place.read(table, filters=[GreaterThan(("age",), 100), IsNotNull(("age",))])
    assert low.left_to_spark == []
    assert low.column("id") == [row["id"] for row in EXPECTED if row["age"] > 100]
    old = place.read(table, filters=[EqualTo(("age",), 7)])
    assert old.rows() == []


def test_whole_keys_are_looked_up(place: Place, table: str) -> None:
    reading = place.read(table, filters=[IsNotNull(("id",)), EqualTo(("id",), 7)])
    assert (reading.kinds, reading.rows()) == (["LookupSplit"], users(7, age=1000))
    several = place.read(table, filters=[In(("id",), (7, 10, 150, 151, 9999, None)), GreaterThan(("age",), 150)])
    assert several.kinds == ["LookupSplit"]
    assert several.column("id") == [7, 151]
    nothing = place.read(table, filters=[EqualTo(("id",), 7), EqualTo(("id",), 8)])
    assert nothing.tasks == []
    too_wide = place.read(table, filters=[EqualTo(("id",), 2**70)])
    assert too_wide.kinds == ["StateSplit"] * 2
    assert too_wide.left_to_spark == [EqualTo(("id",), 2**70)]


def test_prefixes_are_looked_up(place: Place) -> None:
    schema = fluss.Schema(
        pa.schema([("device", pa.string()), ("at", pa.timestamp("ms")), ("value", pa.float64())]), ["device", "at"]
    )
    path = place.create("samples", schema, bucket_count=2, bucket_keys=["device"])
    start = datetime.datetime(2026, 8, 1)
    made = [
        {"device": f"d{device}", "at": start + datetime.timedelta(seconds=second), "value": second * 1.5}
        for device in range(4)
        for second in range(5)
    ]
    place.db.upsert(path, made)
    reading = place.read(path, filters=[In(("device",), ("d1", "d3", "d9"))])
    assert (reading.kinds, reading.split.by_prefix) == (["LookupSplit"], True)
    assert sorted(reading.rows(), key=repr) == sorted((row for row in made if row["device"] in ("d1", "d3")), key=repr)
    one = place.read(path, filters=[EqualTo(("device",), "d1"), EqualTo(("at",), start)])
    assert (one.split.by_prefix, one.rows()) == (False, [made[5]])


def test_partitions_keys_and_lookups(place: Place) -> None:
    schema = fluss.Schema(pa.schema([("day", pa.string()), ("id", pa.int32()), ("v", pa.int64())]), ["day", "id"])
    path = place.create("days", schema, bucket_count=1, partition_keys=["day"])
    for day in ("a", "b"):
        place.db.create_partition(path, {"day": day})
        place.db.upsert(path, [{"day": day, "id": number, "v": number * 10} for number in range(3)])
    assert place.read(path).table().num_rows == 6
    one_day = place.read(path, filters=[EqualTo(("day",), "b")])
    assert (one_day.kinds, one_day.column("id")) == (["StateSplit"], [0, 1, 2])
    one = place.read(path, filters=[In(("day",), ("b", "missing")), EqualTo(("id",), 1)])
    assert (one.kinds, one.rows()) == (["LookupSplit"], [{"day": "b", "id": 1, "v": 10}])


@pytest.mark.parametrize("limit", [1, 100, 5_000])
def test_a_limit(place: Place, table: str, limit: int) -> None:
    state = place.read(table, limit=limit)
    assert state.kinds == ["LimitedSplit"]
    ids = state.column("id")
    assert len(ids) == len(set(ids)) == min(limit, len(EXPECTED))
    assert place.read(table, mode="changelog", limit=limit).table().num_rows == min(limit, 200 + 100 + 20)


def test_the_changelog_has_every_change(place: Place, table: str) -> None:
    found = place.read(table, mode="changelog").rows()
    kinds = [row["_change_type"] for row in found]
    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    assert counts == {"insert": 200, "update_before": 50, "update_after": 50, "delete": 20}
    seven = sorted((row for row in found if row["id"] == 7), key=lambda row: row["_log_offset"])
    assert [(row["_change_type"], row["age"]) for row in seven] == [
        ("insert", 7),
        ("update_before", 7),
        ("update_after", 1007),
    ]
    assert all(row["_commit_timestamp"].tzinfo is not None for row in found)
    deletes = place.read(f"{table}$changelog", columns="_change_type,id", filters=[EqualTo(("id",), 10)])
    assert sorted(row["_change_type"] for row in deletes.rows()) == [
        "delete",
        "insert",
        "update_after",
        "update_before",
    ]


def test_the_history_of_a_key_is_read_from_its_bucket_only(place: Place, table: str) -> None:
    history = place.read(table, mode="changelog", filters=[EqualTo(("id",), 7)])
    assert len(history.tasks) == 1
    assert [row["age"] for row in history.rows("_log_offset")] == [7, 7, 1007]
    assert place.read(table, mode="changelog", filters=[EqualTo(("id",), 7), EqualTo(("id",), 8)]).tasks == []
    some = place.read(table, start='{"0": 0}', filters=[In(("id",), (7, 10, 150))])
    assert some.column("id") == [7]


def test_states_of_the_past_and_windows_of_changes(place: Place) -> None:
    """Random upserts and deletes: the state at every noted moment is exact; windows fold to their last rows."""
    path = place.create("history", USERS, bucket_count=1)
    rng = random.Random(5)
    state: dict[int, int] = {}
    moments: list[tuple[int, dict[int, int]]] = []
    touched: list[set[int]] = []
    for _ in range(4):
        writes = rng.sample(range(60), 30)
        place.db.upsert(path, [{"id": key, "name": "x", "age": rng.randrange(1000)} for key in writes])
        deletes = rng.sample(writes, 5)
        place.db.delete(path, [{"id": key} for key in deletes])
        state = {row["id"]: row["age"] for row in place.read(path).rows()}
        moments.append((latest(place, path)[0], dict(state)))
        touched.append(set(writes))
    for offset, expected in moments:
        found = place.read(path, end=f'{{"0": {offset}}}')
        assert found.split.offset == offset
        assert {row["id"]: row["age"] for row in found.rows()} == expected
    window = place.read(path, start=f'{{"0": {moments[1][0]}}}', end=f'{{"0": {moments[2][0]}}}')
    assert window.kinds == ["WindowSplit"]
    expected_window = {key: age for key, age in moments[2][1].items() if key in touched[2]}
    assert {row["id"]: row["age"] for row in window.rows()} == expected_window
    assert place.read(path, start=f'{{"0": {moments[1][0]}}}', limit=3).table().num_rows == 3


def test_a_time_window_has_the_last_rows_of_changed_keys_without_deleted_ones(place: Place) -> None:
    path = place.create("timed", USERS, bucket_count=1)
    place.db.upsert(path, users(1, 2, 3, 4))
    later_commit_time()
    place.db.upsert(path, users(2, 3, 5, age=10))
    later_commit_time()
    place.db.upsert(path, users(2, age=20))
    place.db.delete(path, [{"id": 3}])
    later_commit_time()
    place.db.upsert(path, users(6))
    changes = place.read(path, mode="changelog").rows("_log_offset")
    millis = [int(row["_commit_timestamp"].timestamp() * 1000) for row in changes]
    second, last = millis[4], millis[-1]
    window = {"scan.incremental.start.timestamp": second, "scan.incremental.end.timestamp": last}
    assert place.read(path, **window).rows("id") == [*users(2, age=20), *users(5, age=10)]
    open_end = place.read(path, **{"scan.incremental.start.timestamp": second})
    assert open_end.column("id") == [2, 5, 6]
    before = place.read(path, end=f"timestamp:{second}")
    assert before.rows("id") == users(1, 2, 3, 4)


def test_tables_without_old_images() -> None:
    """table.changelog.image=WAL: the current rows and the changelog can be read, states of the past cannot."""
    with new_place(running_target("standalone")) as place:
        path = place.create("wal", USERS, bucket_count=1, properties={"table.changelog.image": "WAL"})
        place.db.upsert(path, users(1, 2))
        middle = latest(place, path)[0]
        place.db.upsert(path, users(2, 3, age=10))
        assert place.read(path).rows("id") == [*users(1), *users(2, 3, age=10)]
        assert place.read(path, mode="changelog").table().num_rows == 4
        with pytest.raises(FlussError, match="no old rows"):
            place.read(path, end=f'{{"0": {middle}}}').rows()


@pytest.mark.all
def test_a_changelog_that_ends_with_offsets_without_rows_is_read_to_its_end(place: Place) -> None:
    path = place.create("first", USERS, bucket_count=1, properties={"table.merge-engine": "first_row"})
    for _ in range(3):
        place.db.upsert(path, users(1))
    for start in range(4):
        reading = place.read(path, mode="changelog", start=f'{{"0": {start}}}')
        assert reading.table().num_rows == (1 if start == 0 else 0)
