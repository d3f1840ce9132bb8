"""Puts that find no room: rows are taken back, the reserve stays, and puts work again when there is room."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

import fluss
from fluss.codec.batches.kv_batch import encode_kv_batch
from fluss.codec.keys.encoding import KeyEncoding, encode_key
from fluss.codec.rows.compacted import encode_compacted_row
from fluss.errors import ErrorCode, FlussError
from fluss.model.types import BigIntType
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.storage.log.options import RESERVED_FREE_BYTES
from tests.recovery.test_full_disk import create_until_refused, disk, fill, table_names
from tests.support.harness.kv_tablet import KvTable, replayed
from tests.support.harness.tablet import TabletHarness
from tests.support.storage.faulty_files import FaultyFiles
from tests.support.tables.kv_workload import SCHEMA, create_table
from tests.support.tables.log_workload import leaders
from tools.servers.server_process import ServerProcess
from tools.servers.wire_client import WireClient
from tools.waiting import eventually, wait_until

__all__ = ["disk"]
ROWS_PER_PUT = 50
TEXT_LETTERS = 4000
MOST_PUTS = 500
FILLER_BYTES = 6 * 1024 * 1024
# What a server writes besides rows: checkpoints, the catalog, RocksDB's own notes.
NOTES_BYTES = 512 * 1024


def test_rows_of_failed_puts_are_not_seen_by_later_ones(tmp_path: Path) -> None:
    async def main() -> None:
        files = FaultyFiles(tmp_path)
        async with TabletHarness(tmp_path, files=files) as tablet:
            table = KvTable.create(tablet)
            await table.upsert((1, "a", 1), (2, "b", 2))
            files.free_space_bytes = 0
            failed = [table.send(table.batch([("put", (1, f"lost {number}", 0))])) for number in range(3)]
            failed.append(table.send(table.batch([("delete", (2, "", 0)), ("put", (3, "lost", 0))])))
            for answer in failed:
                assert (await answer).buckets_resp[0].error_code == 70
            await eventually(lambda: table.kv.log.log_end_offset == 2, "the offsets to be taken back")
            files.free_space_bytes = None
            assert (await table.upsert((1, "c", 3), (3, "d", 4))).log_end_offset == 5
            assert table.rows() == [(1, "c", 3), (2, "b", 2), (3, "d", 4)]
            assert [change.kind for change in await table.changelog()] == ["+I", "+I", "-U", "+U", "+I"]
            assert replayed(await table.changelog(), table.key) == table.state()
            assert table.kv.row_count == 3

    asyncio.run(main())


def _records(put_number: int) -> bytes:
    """Rows of new keys with strings that do not compress."""
    choice = random.Random(put_number)
    keys, rows = [], []
    for number in range(put_number * ROWS_PER_PUT, (put_number + 1) * ROWS_PER_PUT):
        text = choice.randbytes(TEXT_LETTERS // 2).hex()
        keys.append(encode_key([number], [BigIntType(nullable=False)], KeyEncoding.COMPACTED))
        rows.append(encode_compacted_row([number, put_number, text], SCHEMA.data_types))
    return encode_kv_batch(keys, rows, 1)


def _put(client: WireClient, table_id: int, put_number: int) -> None:
    request = pb.PutKvRequest(table_id=table_id, acks=-1, timeout_ms=20_000)
    request.buckets_req.add(bucket_id=0, records=_records(put_number))
    answer = client.call(ApiKey.PUT_KV, request).buckets_resp[0]
    if answer.HasField("error_code"):
        raise FlussError(answer.error_message, answer.error_code)


def _put_until_refused(client: WireClient, table_id: int, first: int) -> tuple[int, FlussError]:
    for put_number in range(first, MOST_PUTS):
        try:
            _put(client, table_id, put_number)
        except FlussError as error:
            return put_number, error
    raise AssertionError("the disk takes everything")


def _row_count(client: WireClient, table_id: int, end: int) -> int:
    request = pb.LookupRequest(table_id=table_id)
    keys = [encode_key([number], [BigIntType(nullable=False)], KeyEncoding.COMPACTED) for number in range(end)]
    request.buckets_req.add(bucket_id=0, keys=keys)
    return sum(bool(item.values) for item in client.call(ApiKey.LOOKUP, request).buckets_resp[0].values)


def _free_bytes(path: Path) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def test_the_reserve_of_the_disk_holds_for_rows_and_new_tables(disk: Path) -> None:
    fill(disk / "first", FILLER_BYTES)
    with ServerProcess(disk) as server:
        table_id = create_table(server.address, "t", 1)
        with WireClient(*leaders(server.address, "t")[0]) as client:
            puts, error = _put_until_refused(client, table_id, 0)
            assert error.error_code == ErrorCode.DISK_WRITE_LOCKED
            assert "no space left" in error.message
            assert "no space left" in server.log_text()
            assert puts > 10
            assert _row_count(client, table_id, puts * ROWS_PER_PUT) == puts * ROWS_PER_PUT
        # Closing the store writes all rows in memory into files.
        assert server.stop() == 0
        assert _free_bytes(disk) >= RESERVED_FREE_BYTES - NOTES_BYTES
        server.start()
        fill(disk / "filler", max(1, _free_bytes(disk) - RESERVED_FREE_BYTES + NOTES_BYTES))
        name, error = create_until_refused(server.address)
        assert error.error_code == ErrorCode.DISK_WRITE_LOCKED
        assert name not in table_names(server.address)
        with WireClient(*leaders(server.address, "t")[0]) as client:
            assert _put_until_refused(client, table_id, puts)[1].error_code == ErrorCode.DISK_WRITE_LOCKED
            assert _row_count(client, table_id, puts * ROWS_PER_PUT) == puts * ROWS_PER_PUT
            (disk / "first").unlink()
            create_table(server.address, name, 1)
            wait_until(lambda: _is_taken(client, table_id, puts), "a put after room was made")
        assert "Traceback" not in server.log_text()


def test_a_bucket_without_room_to_be_opened_reports_it_and_opens_when_there_is_room(disk: Path) -> None:
    with ServerProcess(disk) as server:
        table_id = create_table(server.address, "t", 1)
        fill(disk / "filler")
        with WireClient(*leaders(server.address, "t")[0]) as client:
            _, error = _put_until_refused(client, table_id, 0)
            assert error.error_code == ErrorCode.DISK_WRITE_LOCKED
            assert "no space left on the disk, free some space" in error.message
            with fluss.connect(server.address) as db, pytest.raises(FlussError, match=r"\(error code 70\)"):
                db.upsert("t", [{"id": 1, "number": 1, "text": "a client, which says so at once"}])
            (disk / "filler").unlink()
            wait_until(lambda: _is_taken(client, table_id, 0), "a put after room was made")
            assert _row_count(client, table_id, ROWS_PER_PUT) == ROWS_PER_PUT


def _is_taken(client: WireClient, table_id: int, put_number: int) -> bool:
    try:
        _put(client, table_id, put_number)
    except FlussError as error:
        if error.error_code == ErrorCode.DISK_WRITE_LOCKED:
            return False
        raise
    return True
