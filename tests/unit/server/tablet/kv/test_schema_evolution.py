"""Puts before and after a table got a column: old writers, old rows, and their replay."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

from fluss.codec.batches.kv_batch import encode_kv_batch
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tests.support.harness.kv_tablet import KvTable, replayed
from tests.support.harness.tablet import TabletHarness
from tools.servers.messages import path

ADD_LAST = 0


def _add_column(tablet: TabletHarness) -> None:
    request = pb.AlterTableRequest(table_path=path("t"), ignore_if_not_exists=False)
    kind = json.dumps({"type": "STRING"}).encode()
    request.add_columns.add(column_name="extra", data_type_json=kind, column_position_type=ADD_LAST)
    tablet.coordinator.call(ApiKey.ALTER_TABLE, request)


def test_old_rows_and_old_writers_after_a_column_was_added(tmp_path: Path) -> None:
    async def main() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable.create(tablet)
            await table.upsert((1, "a", 1), (2, "b", 2), (3, "c", 3))
            _add_column(tablet)
            assert (await table.upsert((9, "x", 9), schema_id=1, targets=[0, 7])).error_code == 35
            await table.upsert((1, "A", 10), schema_id=1)
            await table.upsert((2, "B", 20, "new"))
            await table.upsert((3, None, None, "part"), targets=[0, 3])
            await table.upsert((4, None, None, "part"), targets=[0, 3])
            expected = [(1, "A", 10, None), (2, "B", 20, "new"), (3, "c", 3, "part"), (4, None, None, "part")]
            assert table.rows() == expected
            assert replayed(await table.changelog(), table.key) == table.state()
            unknown = encode_kv_batch([table.key((1,))], [b"\0\1"], 3)
            assert (await table.send(unknown)).buckets_resp[0].error_code == 9
            directory = table.kv.store.directory.parent
        shutil.rmtree(directory)
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable(tablet, table.table_id)
            await table.put()
            assert table.rows() == expected

    asyncio.run(main())
