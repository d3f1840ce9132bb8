"""A dropped primary-key table leaves nothing in the memory of its tablet."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from pathlib import Path

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import kv_range_api_pb2 as range_pb
from fluss.protocol.api_keys import ApiKey
from tests.support.harness.kv_tablet import KvTable
from tests.support.harness.tablet import TabletHarness
from tests.support.storage.faulty_files import NoSyncFiles
from tools.servers.messages import path
from tools.waiting import eventually

DROPPED = 12


def live_objects() -> Counter[str]:
    """The number of live objects of our own classes, by type."""
    gc.collect()
    kinds = (type(each) for each in gc.get_objects())
    return Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("fluss."))


async def use_and_drop(tablet: TabletHarness, number: int) -> None:
    """Do everything for which a tablet keeps state: auto-increment puts, lookups, projected fetches, split points."""
    table = KvTable.create(tablet, f"t{number}", schema={"auto_increment_column": ["score"]})
    assert (await table.upsert((1, "a", None), targets=[0, 1])).error_code == 0
    lookup = pb.LookupRequest(table_id=table.table_id)
    lookup.buckets_req.add(bucket_id=0, keys=[table.key((1, None, None))])
    assert (await tablet.call(ApiKey.LOOKUP, lookup, api_version=1)).buckets_resp[0].values
    fetch = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 20)
    wanted = fetch.tables_req.add(table_id=table.table_id, projection_pushdown_enabled=True, projected_fields=[0])
    wanted.buckets_req.add(bucket_id=0, fetch_offset=0, max_fetch_bytes=1 << 20)
    assert (await tablet.call(ApiKey.FETCH_LOG, fetch)).tables_resp[0].buckets_resp[0].records
    split = range_pb.SplitKvRequest(table_id=table.table_id, piece_bytes=1)
    split.buckets_req.add(bucket_id=0)
    assert not (await tablet.call(ApiKey.SPLIT_KV, split)).buckets_resp[0].HasField("error_code")
    directory = Path(table.kv.log.directory)
    tablet.coordinator.call(
        ApiKey.DROP_TABLE, pb.DropTableRequest(table_path=path(f"t{number}"), ignore_if_not_exists=False)
    )
    tablet.service.registry.follow_catalog()
    await eventually(lambda: not directory.exists(), "the files are gone")


def test_nothing_is_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with TabletHarness(tmp_path, files=NoSyncFiles()) as tablet:
            for number in range(3):  # what is loaded and remembered once for all
                await use_and_drop(tablet, number)
            before = live_objects()
            for number in range(3, 3 + DROPPED):
                await use_and_drop(tablet, number)

            def grown() -> dict[str, int]:
                return {name: count for name, count in (live_objects() - before).items() if count >= DROPPED}

            await eventually(lambda: not grown(), "nothing is left", seen=grown)  # what runs beside it ends first

    asyncio.run(main())
