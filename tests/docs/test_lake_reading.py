"""What the documents say about lakes: our own pages with their code as written, and `LakeSnapshot` of the reference."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa

import fluss
from fluss.api.connection import engine_of
from fluss.lake.tiering.local_runner import LocalRunner
from fluss.lake.tiering.options import TieringOptions
from fluss.lake.tiering.progress import Quiet
from fluss.lake.tiering.service import TieringService
from fluss.model.paths import TablePath
from tests.docs.documents import CHECKOUT, DOCUMENTED_ADDRESS, document, python_blocks
from tests.support.servers.targets import Target, running_target

ORDERS = pa.schema([("id", pa.int64()), ("amount", pa.float64())])


def tiered_orders(target: Target) -> None:
    """`fluss.orders` with three rows in the lake and one behind it."""
    with fluss.connect(target.bootstrap_servers) as db:
        db.drop_table("orders", ignore_if_not_exists=True)
        db.create_table("orders", ORDERS, properties={"table.datalake.enabled": "true"})
        db.append("orders", [(1, 50.0), (2, 150.0), (3, 250.0)])
        engine = engine_of(db.connection)
        runner = LocalRunner(engine, 1)
        service = TieringService(engine, runner, Quiet(), TieringOptions(), [TablePath("fluss", "orders")])
        try:
            service.once()
        finally:
            service.close()
            runner.close()
        db.append("orders", [(4, 350.0)])


def test_the_page_about_reading_and_the_snapshot_of_the_reference() -> None:
    target = running_target("embedded")
    tiered_orders(target)
    (block,) = python_blocks((CHECKOUT / "docs" / "lake-reading.md").read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    exec(block.code.replace(DOCUMENTED_ADDRESS, target.bootstrap_servers), names)
    assert sorted(names["orders"].column("id").to_pylist()) == [1, 2, 3, 4]
    assert sorted(names["large"].column("id").to_pylist()) == [2, 3, 4]
    for name in ("tiered", "older"):
        assert sorted(names[name].column("id").to_pylist()) == [1, 2, 3]
    assert sorted(names["scanned"].column("id").to_pylist()) == [1, 2, 3, 4]
    check_snapshot(target)


def check_snapshot(target: Target) -> None:
    """The call of document 002, and what document 004 says its answer has."""
    assert "await get_latest_lake_snapshot(table_path) -> LakeSnapshot" in document("002")
    assert ".table_buckets_offset" in document("004")

    async def newest() -> fluss.LakeSnapshot:
        async with await fluss.FlussConnection.create(target.config()) as connection:
            admin = await connection.get_admin()
            return await admin.get_latest_lake_snapshot(fluss.TablePath("fluss", "orders"))

    snapshot = asyncio.run(newest())
    assert isinstance(snapshot.snapshot_id, int)
    assert sum(snapshot.table_buckets_offset.values()) == 3
    assert {type(bucket) for bucket in snapshot.get_table_buckets()} == {fluss.TableBucket}
    (bucket,) = [each for each in snapshot.get_table_buckets() if snapshot.get_bucket_offset(each)]
    assert snapshot.get_bucket_offset(bucket) == 3
