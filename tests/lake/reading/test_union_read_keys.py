"""Reads of lake and changelog of primary-key tables: the regression list U1 to U5, each against the live rows too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss import Predicate, col
from fluss.errors import ErrorCode, FlussError
from fluss.lake.reading import current_rows
from fluss.lake.reading.plan import key_part, plan_union
from tests.support.lake.tiered_tables import OPTIONS, PEOPLE, REGIONAL, LakeTable, person
from tests.support.lake.union_reads import (
    EXPIRING,
    SERVER,
    check_reads,
    drop_partition,
    expire,
    ordered,
    planned,
    read_plan,
    rows_of,
)

# Old rows of the lake are hidden instead of rewritten, whatever the size.
BY_POSITION = replace(OPTIONS, position_deletes_from_bytes=0, position_deletes_max_share=1.0, max_deleted_share=10.0)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fluss.Database]:
    with (
        fluss.embedded(tmp_path_factory.mktemp("server") / "data", config=SERVER) as cluster,
        fluss.connect(cluster.bootstrap_servers) as db,
    ):
        yield db


def tiered(db: fluss.Database, numbers: range, **options: Any) -> LakeTable:
    table = LakeTable(db, primary_keys=["id"], **options)
    db.upsert(table.name, [person(n) for n in numbers])
    table.tier()
    return table


def test_u1_files_need_not_be_sorted_by_key(db: fluss.Database) -> None:
    """Files are in the order of offsets; several files of a bucket have keys that overlap, and hidden rows."""
    table = LakeTable(db, primary_keys=["id"])
    model: dict[int, dict[str, Any]] = {}
    for round_number, numbers in enumerate((range(90, 30, -1), range(0, 100, 3), range(50, 120))):
        rows = [person(n, name=f"r{round_number}") for n in numbers]
        db.upsert(table.name, rows)
        model |= {row["id"]: row for row in rows}
        table.tier(BY_POSITION)
    files = [file for split in planned(table).splits for file in split.files]
    assert len(files) == 6
    assert sum(file.deleted_rows for file in files), "no row is hidden: the test shows less than intended"
    db.upsert(table.name, [person(n, name="tail") for n in range(0, 150, 7)])
    model |= {n: person(n, name="tail") for n in range(0, 150, 7)}
    check_reads(table, list(model.values()))


@pytest.mark.parametrize(
    ("key_type", "keys"),
    [
        (pa.string(), ["b", "a", "ä", "aa", "B", " "]),
        (pa.int32(), [-1, 0, 1, -(2**31), 2**31 - 1]),
        (pa.binary(), [b"\xff", b"\x00", b"\x7f\x80", b"a"]),
        (pa.date32(), [-1, 0, 1, 20_000]),
        (pa.timestamp("us"), [-1, 0, 1, 10**15]),
        (pa.decimal128(10, 2), ["-0.01", "0.00", "10.00", "9.99"]),
    ],
    ids=["text", "int", "bytes", "date", "timestamp", "decimal"],
)
def test_u2_keys_of_any_encoding_are_matched(db: fluss.Database, key_type: pa.DataType, keys: list[Any]) -> None:
    """A hash merge needs no order of keys; equal keys must be equal in files and changelog."""
    if pa.types.is_decimal(key_type):
        values = pa.array(keys).cast(key_type)
    elif pa.types.is_temporal(key_type):
        values = pa.array(keys, pa.int32() if key_type == pa.date32() else pa.int64()).cast(key_type)
    else:
        values = pa.array(keys, key_type)
    table = LakeTable(db, pa.schema([pa.field("k", key_type, False), ("v", pa.int64())]), primary_keys=["k"])
    db.upsert(table.name, pa.table({"k": values, "v": pa.array(range(len(keys)), pa.int64())}))
    table.tier()
    changed, gone = values[:2], values[2:3]
    db.upsert(table.name, pa.table({"k": changed, "v": pa.array([100, 101], pa.int64())}))
    db.delete(table.name, pa.table({"k": gone}))
    expected = [{"k": key.as_py(), "v": value} for key, value in zip(values, range(len(keys)), strict=True)]
    expected[0]["v"], expected[1]["v"] = 100, 101
    check_reads(table, [row for number, row in enumerate(expected) if number != 2])


def test_u3_only_conditions_on_keys_are_applied_before_the_merge(db: fluss.Database) -> None:
    """The row of the lake matches and the newer one does not: it must not reappear; and vice versa."""
    table = tiered(db, range(20))
    db.upsert(table.name, [person(n, age=80) for n in range(10)])
    newer = [person(n, age=80) for n in range(10)] + [person(n) for n in range(10, 20)]
    cases: list[tuple[Predicate, Callable[[dict[str, Any]], bool]]] = [
        (col("age") < 50, lambda row: row["age"] < 50),
        (col("age") == 80, lambda row: row["age"] == 80),
        ((col("id") >= 5) & (col("age") < 50), lambda row: row["id"] >= 5 and row["age"] < 50),
        ((col("id") < 3) | (col("age") < 50), lambda row: row["id"] < 3 or row["age"] < 50),
        (~(col("age") == 80) & col("id").is_in([1, 15]), lambda row: row["age"] != 80 and row["id"] in (1, 15)),
        (col("name").is_null(), lambda row: False),
    ]
    for where, keeps in cases:
        check_reads(table, [row for row in newer if keeps(row)], where=where)
    check_reads(table, [row for row in newer if row["age"] < 50], ["name"], where=col("age") < 50)


def test_u3_a_condition_on_keys_leaves_out_files(db: fluss.Database) -> None:
    table = tiered(db, range(10), bucket_count=1)
    db.upsert(table.name, [person(n) for n in range(100, 110)])
    table.tier(BY_POSITION)
    assert len(planned(table).splits[0].files) == 2
    assert len(planned(table, (col("id") > 50) & (col("age") > 0)).splits[0].files) == 1
    assert len(planned(table, col("age") > 1000).splits[0].files) == 2, "ages may have changed since"
    check_reads(table, [person(n) for n in range(100, 110)], where=col("id") > 50)


def test_u3_the_part_of_a_filter_on_keys() -> None:
    key, other = col("id") > 1, col("age") > 1
    assert key_part(None, ["id"]) is None
    assert key_part(other, ["id"]) is None
    assert key_part(key, ["id"]) is key
    assert key_part(key & other, ["id"]) is key
    assert repr(key_part(key & other & (col("id") < 9), ["id"])) == repr(key & (col("id") < 9))
    assert key_part(key | other, ["id"]) is None
    assert key_part(~(key & other), ["id"]) is None


def test_u4_the_log_continues_where_the_snapshot_ends(db: fluss.Database) -> None:
    """Lake and log of a plan meet without gap or overlap, and rows after the plan are not in it."""
    table = tiered(db, range(30))
    db.upsert(table.name, [person(n, name="tail") for n in range(20, 40)])
    plan = planned(table)
    before = [person(n) for n in range(20)] + [person(n, name="tail") for n in range(20, 40)]
    db.upsert(table.name, [person(n, name="later") for n in range(50)])
    db.delete(table.name, [{"id": 0}])
    assert read_plan(table, plan) == ordered(before)
    for split in plan.splits:
        assert split.files
        assert 0 < split.start < split.stop
        last = max(row["__offset"] for row in _lake_rows(split))
        assert last < split.start


def _lake_rows(split: Any) -> list[dict[str, Any]]:
    from tests.support.lake.tables import PEOPLE as COLUMNS
    from tests.support.lake.tables import schema_of

    batches = split.target.read_files(split.files, schema_of(COLUMNS, ["id"]), ["__offset"])
    return [row for batch in batches for row in batch.to_pylist()]


def test_u5_changes_of_a_key_in_the_tail(db: fluss.Database) -> None:
    """Deleted; changed, then deleted; deleted, then inserted; only in the tail; inserted and deleted in the tail."""
    table = tiered(db, range(10))
    db.delete(table.name, [{"id": 0}])
    db.upsert(table.name, person(1, name="changed, then deleted"))
    db.delete(table.name, [{"id": 1}])
    db.delete(table.name, [{"id": 2}])
    db.upsert(table.name, person(2, name="again"))
    db.upsert(table.name, person(50, name="only in the tail"))
    db.upsert(table.name, person(51))
    db.delete(table.name, [{"id": 51}])
    db.upsert(table.name, person(3, name=None, age=None))
    expected = [person(2, name="again"), person(50, name="only in the tail"), person(3, name=None, age=None)]
    check_reads(table, [*expected, *(person(n) for n in range(4, 10))])


def test_u5_everything_of_the_lake_is_deleted(db: fluss.Database) -> None:
    table = tiered(db, range(10))
    db.delete(table.name, [{"id": n} for n in range(10)])
    check_reads(table, [])
    table.tier()
    check_reads(table, [])
    db.upsert(table.name, person(3))
    check_reads(table, [person(3)])


def test_u5_empty_buckets_and_buckets_without_lake_data(db: fluss.Database) -> None:
    table = tiered(db, range(1), bucket_count=8)
    assert len(planned(table).splits) == 1
    db.upsert(table.name, [person(n) for n in range(1, 4)])
    check_reads(table, [person(n) for n in range(4)])
    kinds = {(bool(split.files), split.is_live) for split in planned(table).splits}
    assert kinds == {(True, False), (False, True)}, "a bucket that the lake does not know is read live"


@pytest.mark.parametrize("keys", [["region", "id"], ["id", "region"]], ids="-".join)
def test_u5_partition_keys_anywhere_in_the_key(db: fluss.Database, keys: list[str]) -> None:
    """Keys that differ only in the partition are different rows."""
    table = LakeTable(db, REGIONAL, partitions=("eu", "us"), primary_keys=keys)
    rows = [person(n, region=region) for n in range(10) for region in ("eu", "us")]
    db.upsert(table.name, rows)
    table.tier()
    db.upsert(table.name, person(3, region="eu", name="new"))
    db.delete(table.name, [{"id": 3, "region": "us"}])
    kept = [row for row in rows if row["id"] != 3]
    check_reads(table, [*kept, person(3, region="eu", name="new")])
    check_reads(table, [person(3, region="eu", name="new")], where=(col("region") == "eu") & (col("id") == 3))


def test_u5_keys_beyond_those_of_the_snapshot(db: fluss.Database) -> None:
    table = tiered(db, range(10, 20), bucket_count=1)
    db.upsert(table.name, [person(5), person(25), person(2**62)])
    check_reads(table, [person(5), *(person(n) for n in range(10, 20)), person(25), person(2**62)])


def test_u5_columns_of_the_key_in_any_order(db: fluss.Database) -> None:
    """The key is neither first nor in the order of the columns, and one of them decides the bucket."""
    schema = pa.schema(
        [("v", pa.int64()), pa.field("b", pa.string(), False), ("w", pa.string()), pa.field("a", pa.int32(), False)]
    )
    table = LakeTable(db, schema, primary_keys=["a", "b"], bucket_keys=["a"])
    rows = [{"v": a, "b": b, "w": f"{a}{b}", "a": a} for a in range(6) for b in ("x", "y")]
    db.upsert(table.name, rows)
    table.tier()
    db.upsert(table.name, {"v": 99, "b": "x", "w": "new", "a": 2})
    db.delete(table.name, [{"a": 3, "b": "y"}])
    kept = [row for row in rows if (row["a"], row["b"]) not in ((2, "x"), (3, "y"))]
    check_reads(table, [*kept, {"v": 99, "b": "x", "w": "new", "a": 2}])
    check_reads(table, [*kept, {"v": 99, "b": "x", "w": "new", "a": 2}], ["w"])


def test_a_tail_that_is_too_large_for_memory_goes_through_files(db: fluss.Database) -> None:
    table = tiered(db, range(200))
    db.upsert(table.name, [person(n, name="tail") for n in range(100, 300)])
    db.delete(table.name, [{"id": n} for n in range(0, 300, 5)])
    expected = [person(n, name="tail" if n >= 100 else f"n{n}") for n in range(300) if n % 5]
    plan = planned(table)
    assert read_plan(table, plan, max_tail_bytes=1) == ordered(expected)
    filtered = read_plan(table, plan, ["id"], predicate=col("name") == "tail", max_tail_bytes=1)
    assert filtered == ordered({"id": row["id"]} for row in expected if row["name"] == "tail")


def test_columns_added_since_the_snapshot(db: fluss.Database) -> None:
    table = tiered(db, range(5))
    db.alter_table(table.name, add_columns={"city": pa.string()})
    db.upsert(table.name, person(1, city="Rome"))
    expected = [person(n, city="Rome" if n == 1 else None) for n in range(5)]
    check_reads(table, expected)
    check_reads(table, [person(1, city="Rome")], where=col("city") == "Rome")
    table.tier()
    check_reads(table, expected)


def test_limits(db: fluss.Database) -> None:
    table = tiered(db, range(20))
    db.upsert(table.name, [person(n, name="tail") for n in range(10, 30)])
    model = {n: person(n, name="tail" if n >= 10 else f"n{n}") for n in range(30)}
    for limit in (1, 7, 29, 30, 31):
        for union in (None, True):
            found = rows_of(table, limit=limit, union=union)
            assert len(found) == min(limit, 30)
            assert all(model[row["id"]] == row for row in found)
            assert len({row["id"] for row in found}) == len(found)
    assert len(rows_of(table, ["name"], limit=3, union=True, where=col("name") == "tail")) == 3


def test_partitions_that_are_only_in_the_lake_or_only_in_fluss(db: fluss.Database) -> None:
    table = LakeTable(db, REGIONAL, partitions=("eu", "us"), primary_keys=["region", "id"])
    rows = [person(n, region=region) for n in range(10) for region in ("eu", "us")]
    db.upsert(table.name, rows)
    table.tier()
    db.upsert(table.name, [person(0, region="eu", name="tail")])
    db.create_partition(table.name, {"region": "asia"})
    db.upsert(table.name, [person(7, region="asia")])
    drop_partition(table, "us")
    expected = [*rows[2:], person(0, region="us"), person(0, region="eu", name="tail"), person(7, region="asia")]
    expected = [row for row in expected if (row["id"], row["region"], row["name"]) != (0, "eu", "n0")]
    check_reads(table, expected)
    check_reads(table, [row for row in expected if row["region"] == "us"], where=col("region") == "us")
    check_reads(table, [row for row in expected if row["age"] > 5], ["age", "region"], where=col("age") > 5)
    assert len(rows_of(table, limit=15)) == 15
    assert len(rows_of(table, limit=500)) == len(expected)
    alone = {row["region"] for row in rows_of(table, union=False)}
    assert alone == {"eu", "asia"}, "union=False reads nothing from the lake"


def test_only_the_lake(db: fluss.Database) -> None:
    table = LakeTable(db, PEOPLE, primary_keys=["id"])
    assert rows_of(table, read_optimized=True) == []
    db.upsert(table.name, [person(n) for n in range(10)])
    check_reads(table, [person(n) for n in range(10)])
    table.tier()
    db.upsert(table.name, person(1, name="tail"))
    db.delete(table.name, [{"id": 2}])
    assert rows_of(table, read_optimized=True) == ordered(person(n) for n in range(10))
    assert rows_of(table, ["id"], read_optimized=True, where=col("name") == "n1") == [{"id": 1}]


def test_large_tables_are_merged_when_that_is_faster(db: fluss.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are the same either way; the plans show which way was used."""
    plans: list[Any] = []

    def plan(*arguments: Any, **options: Any) -> Any:
        plans.append(plan_union(*arguments, **options))
        return plans[-1]

    monkeypatch.setattr(current_rows, "plan_union", plan)
    table = tiered(db, range(100))
    db.upsert(table.name, [person(n, name="tail") for n in range(10)])
    expected = ordered(person(n, name="tail" if n < 10 else f"n{n}") for n in range(100))
    assert rows_of(table) == expected
    assert plans == [], "a small table is read live"
    monkeypatch.setattr(current_rows, "MIN_UNION_ROWS", 100)
    assert rows_of(table) == expected
    assert len(plans) == 1
    assert len(rows_of(table, limit=7)) == 7
    assert len(plans) == 1, "a limit is faster live"
    db.upsert(table.name, [person(n, name="new") for n in range(80)])
    assert len(rows_of(table, where=col("name") == "new")) == 80
    assert len(plans) == 2, "planned, and found that most has changed since"

    def unreachable(*_: Any, **__: Any) -> Any:
        raise FlussError("the lake does not answer", ErrorCode.STORAGE_EXCEPTION)

    table.tier()
    monkeypatch.setattr(current_rows, "plan_union", unreachable)
    assert len(rows_of(table)) == 100, "the live rows do not need the lake"


def test_times_that_the_lake_would_cut_are_read_live(db: fluss.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current_rows, "MIN_UNION_ROWS", 1)
    schema = pa.schema([pa.field("id", pa.int64(), False), ("at", pa.timestamp("ns"))])
    table = LakeTable(db, schema, primary_keys=["id"])
    written = pa.table({"id": pa.array([1]), "at": pa.array([1_234_567_891], pa.timestamp("ns"))})
    db.upsert(table.name, written)
    table.tier()
    assert db.to_arrow(table.name).column("at").cast(pa.int64()).to_pylist() == [1_234_567_891]
    assert db.to_arrow(table.name, union=True).column("at").cast(pa.int64()).to_pylist() == [1_234_567_000]


def test_a_partition_that_is_created_again(db: fluss.Database) -> None:
    """The rows are those of the new partition, before and after its first round."""
    table = LakeTable(db, REGIONAL, partitions=("eu", "us"), primary_keys=["region", "id"], bucket_count=1)
    db.upsert(table.name, [person(n, region=region) for n in range(5) for region in ("eu", "us")])
    table.tier()
    drop_partition(table, "eu")
    db.create_partition(table.name, {"region": "eu"})
    db.upsert(table.name, [person(n, region="eu", name="new") for n in (4, 9)])
    expected = [person(n, region="us") for n in range(5)] + [person(n, region="eu", name="new") for n in (4, 9)]
    check_reads(table, expected)
    table.tier()
    check_reads(table, expected)
    assert rows_of(table, read_optimized=True) == ordered(expected)


@pytest.mark.parametrize("number", [30, None], ids=["one row", "no row"])
def test_a_partition_that_is_created_again_leaves_no_old_row_in_any_bucket(
    db: fluss.Database, number: int | None
) -> None:
    """Even in buckets without changes in the new one, so no row reappears when it is dropped too."""
    table = LakeTable(db, REGIONAL, partitions=("eu", "us"), primary_keys=["region", "id"], bucket_count=4)
    db.upsert(table.name, [person(n, region=region) for n in range(20) for region in ("eu", "us")])
    table.tier()
    drop_partition(table, "eu")
    db.create_partition(table.name, {"region": "eu"})
    others = [person(n, region="us") for n in range(20)]
    new = [] if number is None else [person(number, region="eu", name="new")]
    db.upsert(table.name, new)
    table.tier()
    table.check([*others, *new])
    check_reads(table, [*others, *new])
    assert table.tier().snapshot_id is None, "there is nothing else"
    drop_partition(table, "eu")
    check_reads(table, [*others, *new])
    found = [db.lookup(table.name, {"region": "eu", "id": n}) for n in range(31)]
    assert [row for row in found if row is not None] == new


def test_a_changelog_that_has_expired(db: fluss.Database) -> None:
    """Everything that is tiered may expire: the lake and the remaining changelog are the table."""
    table = LakeTable(db, primary_keys=["id"], bucket_count=1, properties=EXPIRING)
    model: dict[int, dict[str, Any]] = {}

    def write() -> None:
        rows = [person(n, name="x" * 60, age=len(model)) for n in range(len(model) - 25, len(model) + 25) if n >= 0]
        db.upsert(table.name, rows)
        model.update({row["id"]: row for row in rows})

    expire(table, write, 100)
    write()
    check_reads(table, list(model.values()))
    (split,) = planned(table).splits
    assert split.files
    assert 100 < split.start < split.stop, "the changelog is read from where the lake ends"
