"""Random writes, rounds of tiering and reads against a dict: lake and log show the written rows, at every step."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import fluss
from fluss import col
from tests.support.lake.tiered_tables import OPTIONS, REGIONAL, LakeTable, person
from tests.support.lake.union_reads import check_reads, drop_partition, ordered, planned, read_plan, rows_of
from tests.support.runner.lanes import rounds

REGIONS = ("eu", "us")
KEYS = st.tuples(st.sampled_from(REGIONS), st.integers(0, 12))
UPSERT = st.tuples(st.just("upsert"), st.lists(st.tuples(KEYS, st.integers(0, 5)), min_size=1, max_size=8))
DELETE = st.tuples(st.just("delete"), st.lists(KEYS, min_size=1, max_size=4))
TIER = st.tuples(st.just("tier"), st.booleans())
READ = st.tuples(st.just("read"), st.integers(0, 12))
APPEND = st.tuples(st.just("append"), st.lists(KEYS, min_size=1, max_size=8))
HIDE = replace(OPTIONS, position_deletes_from_bytes=0, position_deletes_max_share=1.0, max_deleted_share=10.0)
# Real servers and files: few examples, no shrinking, and no deadline.
FEW = settings(
    max_examples=int(os.environ.get("FLUSS_MODEL_EXAMPLES") or rounds(gate=4, all_lanes=12)),
    phases=[Phase.generate],
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def check_lake(table: LakeTable, rows: list[dict[str, Any]]) -> None:
    """Check that readers of other projects see the same rows."""
    for reader, seen in table.seen_by_all().items():
        assert ordered(seen) == ordered(rows), reader


@given(steps=st.lists(st.one_of(UPSERT, DELETE, TIER, READ), min_size=4, max_size=12), is_partitioned=st.booleans())
@FEW
def test_a_primary_key_table_is_a_dict(db: fluss.Database, steps: list[Any], is_partitioned: bool) -> None:
    table = LakeTable(
        db,
        REGIONAL,
        partitions=REGIONS if is_partitioned else (),
        primary_keys=["region", "id"],
        bucket_keys=["id"],
    )
    model: dict[tuple[str, int], dict[str, Any]] = {}
    for kind, argument in steps:
        if kind == "upsert":
            rows = [person(number, region=region, age=age) for (region, number), age in argument]
            db.upsert(table.name, rows)
            model |= {(row["region"], row["id"]): row for row in rows}
        elif kind == "delete":
            db.delete(table.name, [{"region": region, "id": number} for region, number in argument])
            model = {key: row for key, row in model.items() if key not in argument}
        elif kind == "tier":
            table.tier(HIDE if argument else OPTIONS)
            check_lake(table, list(model.values()))
        else:
            check_reads(table, list(model.values()))
            above = [row for row in model.values() if row["id"] > argument and row["age"] >= 2]
            check_reads(table, above, ["region", "age"], where=(col("id") > argument) & (col("age") >= 2))
    table.tier()
    db.upsert(table.name, person(99, region="eu"))
    model["eu", 99] = person(99, region="eu")
    check_reads(table, list(model.values()))
    assert read_plan(table, planned(table), max_tail_bytes=1) == ordered(model.values())
    if is_partitioned:
        table.tier()
        drop_partition(table, "us")
        check_reads(table, list(model.values()))


@given(steps=st.lists(st.one_of(APPEND, TIER, READ), min_size=4, max_size=12), is_partitioned=st.booleans())
@FEW
def test_a_log_table_is_a_list(db: fluss.Database, steps: list[Any], is_partitioned: bool) -> None:
    table = LakeTable(db, REGIONAL, partitions=REGIONS if is_partitioned else ())
    model: list[dict[str, Any]] = []
    for kind, argument in steps:
        if kind == "append":
            rows = [person(number, region=region, name=f"{len(model)}") for region, number in argument]
            db.append(table.name, rows)
            model += rows
        elif kind == "tier":
            table.tier()
            check_lake(table, model)
        else:
            check_reads(table, model)
            check_reads(table, [row for row in model if row["id"] > argument], ["name"], where=col("id") > argument)
    table.tier()
    if is_partitioned:
        drop_partition(table, "us")
        check_reads(table, model)
    assert rows_of(table, read_optimized=True) == ordered(model)
