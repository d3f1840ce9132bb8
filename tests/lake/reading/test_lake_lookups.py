"""Lookups of rows in partitions that Fluss has dropped and the lake still has."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss.lake.reading import lake_access
from tests.support.lake.tiered_tables import REGIONAL, LakeTable, person
from tests.support.lake.union_reads import drop_partition

READINGS = pa.schema(
    [
        pa.field("region", pa.string(), False),
        pa.field("device", pa.string(), False),
        pa.field("at", pa.int64(), False),
        ("value", pa.float64()),
    ]
)


@pytest.fixture(scope="module")
def table(db: fluss.Database) -> LakeTable:
    """Partition us is only in the lake, eu in both, asia was tiered and then changed."""
    table = LakeTable(db, REGIONAL, partitions=("eu", "us", "asia"), primary_keys=["region", "id"], bucket_count=3)
    db.upsert(table.name, [person(n, region=region) for n in range(20) for region in ("eu", "us", "asia")])
    table.tier()
    db.upsert(table.name, [person(n, region="us", name="second") for n in range(5)])
    db.delete(table.name, [{"region": "us", "id": 19}])
    table.tier()
    db.upsert(table.name, person(1, region="asia", name="tail"))
    drop_partition(table, "us")
    return table


def test_one_row(db: fluss.Database, table: LakeTable) -> None:
    assert db.lookup(table.name, {"region": "us", "id": 7}) == person(7, region="us")
    assert db.lookup(table.name, ("us", 1)) == person(1, region="us", name="second"), "the newest row of the key"
    assert db.lookup(table.name, ("us", 19)) is None, "it was deleted"
    assert db.lookup(table.name, ("us", 500)) is None
    assert db.lookup(table.name, ("nowhere", 7)) is None
    assert db.lookup(table.name, ("no/such", 7)) is None
    assert db.lookup(table.name, ("eu", 7)) == person(7, region="eu")
    assert db.lookup(table.name, ("asia", 1)) == person(1, region="asia", name="tail")


def test_many_rows(db: fluss.Database, table: LakeTable) -> None:
    keys = [("us", 3), ("eu", 3), ("us", 19), ("nowhere", 1), ("us", 3), ("asia", 500), ("us", 12)]
    third = person(3, region="us", name="second")
    expected = [third, person(3, region="eu"), None, None, third, None, person(12, region="us")]
    assert db.lookup_many(table.name, keys) == expected
    arrow = pa.table({"id": pa.array([key[1] for key in keys]), "region": pa.array([key[0] for key in keys])})
    found = db.lookup_many(table.name, arrow)
    nothing = dict.fromkeys(REGIONAL.names)
    assert found.to_pylist() == [row or nothing for row in expected]
    everything = [("us", n) for n in range(3000)]
    assert [row["id"] for row in db.lookup_many(table.name, everything) if row] == list(range(19))
    assert db.lookup_many(table.name, [("nowhere", 1)]) == [None]


def test_keys_of_many_digits(db: fluss.Database) -> None:
    """Decimals of Python keep 28 digits when they are scaled; columns have up to 38."""
    schema = pa.schema([REGIONAL.field("region"), pa.field("id", pa.decimal128(38, 2), False), ("v", pa.int32())])
    table = LakeTable(db, schema, partitions=("us",), primary_keys=["region", "id"], bucket_count=1)
    keys = [Decimal("123456789012345678901234567890123456.78"), Decimal("-0.01"), Decimal("1.00")]
    db.upsert(table.name, [{"region": "us", "id": key, "v": n} for n, key in enumerate(keys)])
    table.tier()
    drop_partition(table, "us")
    for number, key in enumerate(keys):
        row = {"region": "us", "id": key, "v": number}
        assert db.lookup(table.name, ("us", key)) == row
        assert db.to_arrow(table.name, where=fluss.col("id") == key).to_pylist() == [row]
    assert db.lookup(table.name, ("us", Decimal("123456789012345678901234567890123456.77"))) is None


def test_by_prefix(db: fluss.Database) -> None:
    table = LakeTable(
        db, READINGS, partitions=("eu", "us"), primary_keys=["region", "device", "at"], bucket_keys=["device"]
    )
    rows = [
        {"region": region, "device": device, "at": at, "value": at / 2}
        for region in ("eu", "us")
        for device in ("a", "b")
        for at in (3, 1, 2, 300)
    ]
    db.upsert(table.name, rows)
    table.tier()
    drop_partition(table, "us")
    by = ["region", "device"]
    for region in ("eu", "us"):
        found = db.lookup(table.name, {"region": region, "device": "b"}, by=by)
        assert [row["at"] for row in found] == [1, 2, 3, 300], "in the order of the keys"
        assert {row["region"] for row in found} == {region}
    assert db.lookup(table.name, {"region": "us", "device": "c"}, by=by) == []
    assert db.lookup(table.name, {"region": "nowhere", "device": "a"}, by=by) == []

    found = asyncio.run(_by_prefixes(db, table))
    assert sorted((row["region"], row["at"]) for row in found.to_pylist()) == sorted(
        (region, at) for region in ("eu", "us") for at in (1, 2, 3, 300)
    )


async def _by_prefixes(db: fluss.Database, table: LakeTable) -> Any:
    found = await db.connection.get_table(table.name)
    lookuper = found.new_lookup().lookup_by(["region", "device"]).create_lookuper()
    return await lookuper.lookup_arrow([("us", "a"), ("eu", "a"), ("nowhere", "a")])


def test_a_partition_that_was_just_dropped_is_found(db: fluss.Database) -> None:
    """The lookuper has used the lake before; since then the partition was tiered to its end and dropped."""
    table = LakeTable(db, REGIONAL, partitions=("eu", "us"), primary_keys=["region", "id"])
    db.upsert(table.name, person(1, region="eu"))
    table.tier()
    assert db.lookup(table.name, ("nowhere", 1)) is None
    db.upsert(table.name, person(2, region="us"))
    assert db.lookup(table.name, ("us", 2)) == person(2, region="us")
    table.tier()
    drop_partition(table, "us")
    assert db.lookup(table.name, ("us", 2)) == person(2, region="us")


def test_tables_without_a_lake_are_not_asked_for_one(db: fluss.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.create_table("fluss.plain", REGIONAL, primary_keys=["region", "id"], partition_keys=["region"])

    def refuse(*_: Any) -> Any:
        raise AssertionError("the lake was asked")

    monkeypatch.setattr(lake_access, "load_lake_table", refuse)
    monkeypatch.setattr(lake_access, "registered_snapshot", refuse)
    assert db.lookup("fluss.plain", ("us", 1)) is None
    assert db.lookup_many("fluss.plain", [("us", 1)]) == [None]
