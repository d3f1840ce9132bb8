"""Lookups, prefix lookups, limited scans and row counts of primary-key tables, through the handlers of a tablet."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fluss.codec.batches.value_batch import decode_value_batch
from fluss.errors import ErrorCode
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.tablet.kv import bucket_answers, kv_reads
from fluss.server.tablet.kv import lookup as lookup_module
from tests.support.harness.event_loop import in_event_loop
from tests.support.harness.kv_tablet import COLUMNS, KvTable
from tests.support.harness.tablet import HeldFiles, TabletHarness
from tools.servers.messages import create_partition
from tools.waiting import eventually

TWO_KEYS = (
    {"name": "a", "data_type": {"type": "INTEGER", "nullable": False}},
    {"name": "b", "data_type": {"type": "INTEGER", "nullable": False}},
    {"name": "c", "data_type": {"type": "STRING"}},
)


async def lookup(table: KvTable, *keys: bytes, version: int = 1, **more: Any) -> Any:
    """The result of bucket 0."""
    request = pb.LookupRequest(table_id=table.table_id, **more)
    request.buckets_req.add(bucket_id=0, keys=keys)
    answer = await table.tablet.call(ApiKey.LOOKUP, request, api_version=version)
    return answer.buckets_resp[0]


def rows(table: KvTable, values: Any) -> list[Any]:
    """Values of an answer as rows, None where nothing was found."""
    reader = table.rules.format.reader
    return [tuple(reader.row(value.values)) if value.HasField("values") else None for value in values]


async def prefix_lookup(table: KvTable, *prefixes: bytes) -> Any:
    request = pb.PrefixLookupRequest(table_id=table.table_id)
    request.buckets_req.add(bucket_id=0, keys=prefixes)
    return (await table.tablet.call(ApiKey.PREFIX_LOOKUP, request, api_version=1)).buckets_resp[0]


async def limit_scan(table: KvTable, limit: int) -> Any:
    request = pb.LimitScanRequest(table_id=table.table_id, bucket_id=0, limit=limit)
    return await table.tablet.call(ApiKey.LIMIT_SCAN, request)


async def row_count(table: KvTable) -> Any:
    request = pb.GetTableStatsRequest(table_id=table.table_id)
    request.buckets_req.add(bucket_id=0)
    return (await table.tablet.call(ApiKey.GET_TABLE_STATS, request)).buckets_resp[0]


@in_event_loop
async def test_values_in_the_order_of_the_keys(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert((1, "one", 1), (300, None, None))
        result = await lookup(table, table.key((300,)), b"\x63", table.key((1,)), table.key((1,)))
        assert rows(table, result.values) == [(300, None, None), None, (1, "one", 1), (1, "one", 1)]
        # Bytes of the reference encoder.
        await table.upsert((1, "alice", 100))
        assert (await lookup(table, b"\x01")).values[0].values == bytes.fromhex("0100000105616c69636564")
        assert list((await lookup(table)).values) == []


@in_event_loop
async def test_a_write_is_seen_once_it_is_durable(tmp_path: Path) -> None:
    files = HeldFiles()
    async with TabletHarness(tmp_path, files=files) as tablet:
        table = KvTable.create(tablet)
        await table.upsert((1, "old", 1))
        files.syncs.clear()
        pending = asyncio.ensure_future(table.upsert((1, "new", 2)))
        await eventually(lambda: table.kv.log.log_end_offset == 3, "the put is accepted")
        assert rows(table, (await lookup(table, b"\x01")).values) == [(1, "old", 1)]
        files.syncs.set()
        assert (await pending).log_end_offset == 3
        assert rows(table, (await lookup(table, b"\x01")).values) == [(1, "new", 2)]


@in_event_loop
async def test_many_keys_are_looked_up_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_module, "STEP_KEYS", 7)
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*[(number, str(number), None) for number in range(0, 60, 2)])
        result = await lookup(table, *[table.key((number,)) for number in range(60)])
        assert rows(table, result.values) == [
            None if number % 2 else (number, str(number), None) for number in range(60)
        ]


@in_event_loop
async def test_errors_are_results_of_buckets(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path, tablets=2) as tablet:
        table = KvTable.create(tablet, bucket_count=2)
        log_table = tablet.create_table("log")
        request = pb.LookupRequest(table_id=table.table_id)
        for bucket in (0, 1, 7):
            request.buckets_req.add(bucket_id=bucket, keys=[b"\x01"])
        results = (await tablet.call(ApiKey.LOOKUP, request, api_version=1)).buckets_resp
        assert [result.bucket_id for result in results] == [0, 1, 7]
        codes = sorted(result.error_code for result in results)
        assert codes == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION]
        on_log = await lookup(KvTable(tablet, log_table), b"\x01")
        assert on_log.error_code == ErrorCode.NON_PRIMARY_KEY_TABLE_EXCEPTION
        unknown = await lookup(KvTable(tablet, 99), b"\x01")
        assert unknown.error_code == ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION


@in_event_loop
async def test_empty_keys_and_historical_lookups_are_refused(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert((1, "a", 1))
        assert (await lookup(table, b"\x01", b"")).error_code == ErrorCode.KV_STORAGE_EXCEPTION
        request = pb.LookupRequest(table_id=table.table_id)
        request.buckets_req.add(bucket_id=0, keys=[b"\x01"], original_partition_name="p")
        answer = await tablet.call(ApiKey.LOOKUP, request, api_version=1)
        assert answer.buckets_resp[0].error_code == ErrorCode.UNSUPPORTED_VERSION


@in_event_loop
async def test_old_clients_and_tables_whose_keys_they_encode_differently(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        plain = KvTable.create(tablet)
        await plain.upsert((1, "a", 1))
        assert rows(plain, (await lookup(plain, b"\x01", version=0)).values) == [(1, "a", 1)]
        lake = KvTable.create(
            tablet,
            "lake",
            columns=TWO_KEYS,
            primary_key=["a", "b"],
            bucket_key=["a"],
            properties={"table.datalake.format": "paimon"},
        )
        assert (await lookup(lake, b"\x01", version=0)).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert not (await lookup(lake, b"\x01", version=1)).HasField("error_code")


@in_event_loop
async def test_rows_by_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_reads, "STEP_ROWS", 3)
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet, columns=TWO_KEYS, primary_key=["a", "b"], bucket_key=["a"])
        await table.upsert(*[(a, b, f"{a}/{b}") for a in (1, 2, 129) for b in range(10, 0, -1)])
        result = await prefix_lookup(table, b"\x01", b"\x05", b"\x81\x01")
        reader = table.rules.format.reader
        found = [[reader.row(value)[2] for value in item.values] for item in result.value_lists]
        assert found == [[f"1/{b}" for b in range(1, 11)], [], [f"129/{b}" for b in range(1, 11)]]
        everything = await prefix_lookup(table, b"")
        assert len(everything.value_lists[0].values) == 30
        assert not table.local.waiters


@in_event_loop
async def test_answers_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*[(number, "x" * 100, None) for number in range(20)])
        for module in (kv_reads, bucket_answers):
            monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 1000)
        monkeypatch.setattr("fluss.server.tablet.kv.kv_limit_scan.MAX_ANSWER_BYTES", 1000)
        keys = [table.key((number,)) for number in range(20)]
        too_large = ErrorCode.RECORD_TOO_LARGE_EXCEPTION
        assert (await lookup(table, *keys)).error_code == too_large
        assert (await prefix_lookup(table, b"")).error_code == too_large
        assert (await limit_scan(table, 20)).error_code == too_large
        assert not (await limit_scan(table, 5)).HasField("error_code")


@in_event_loop
async def test_limited_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_reads, "STEP_ROWS", 4)
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        empty = await limit_scan(table, 3)
        assert (empty.is_log_table, bytes(empty.records)) == (False, bytes.fromhex("050000000000000000"))
        await table.upsert(*[(number, "v", number) for number in range(10)])
        await table.put(("delete", (1, None, None)))
        reader = table.rules.format.reader
        for limit in (1, 5, 9, 100):
            answer = await limit_scan(table, limit)
            found = [reader.row(value)[0] for value in decode_value_batch(answer.records).to_pylist()]
            assert found == [0, 2, 3, 4, 5, 6, 7, 8, 9][:limit]
        assert (await limit_scan(table, 0)).error_code == ErrorCode.INVALID_SCAN_REQUEST
        assert not table.local.waiters


@in_event_loop
async def test_row_counts(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        assert (await row_count(table)).row_count == 0
        await table.upsert((1, "a", 1), (2, "b", 2), (1, "c", 3))
        await table.put(("delete", (2, None, None)), ("delete", (9, None, None)))
        assert (await row_count(table)).row_count == 1
        uncounted = KvTable.create(tablet, "wal", properties={"table.changelog.image": "wal"})
        await uncounted.upsert((1, "a", 1))
        assert (await row_count(uncounted)).error_code == ErrorCode.INVALID_TABLE_EXCEPTION


@in_event_loop
async def test_missing_rows_are_inserted_on_request(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert((1, "a", 1))
        inserting = {"insert_if_not_exists": True, "acks": -1, "timeout_ms": 10_000}
        keys = [table.key((number,)) for number in (1, 300, 300, 2)]
        result = await lookup(table, *keys, **inserting)
        assert rows(table, result.values) == [(1, "a", 1), (300, None, None), (300, None, None), (2, None, None)]
        again = await lookup(table, *keys, **inserting)
        assert again == result
        assert [(change.kind, change.row[0]) for change in await table.changelog()] == [
            ("+I", 1),
            ("+I", 300),
            ("+I", 2),
        ]
        no_acks = await lookup(table, keys[0], insert_if_not_exists=True)
        assert no_acks.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        broken = await lookup(table, b"\xff", **inserting)
        assert broken.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION


@in_event_loop
async def test_inserted_rows_get_their_numbers(tmp_path: Path) -> None:
    columns = (*COLUMNS, {"name": "number", "data_type": {"type": "BIGINT"}})
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet, columns=columns, schema={"auto_increment_column": ["number"]})
        inserting = {"insert_if_not_exists": True, "acks": -1, "timeout_ms": 10_000}
        first, second = await asyncio.gather(
            lookup(table, b"\x05", b"\x06", **inserting), lookup(table, b"\x06", b"\x05", **inserting)
        )
        assert rows(table, first.values) == [(5, None, None, 1), (6, None, None, 2)]
        assert rows(table, second.values) == [(6, None, None, 2), (5, None, None, 1)]


PARTITION_VALUES: list[tuple[dict[str, Any], str, Any]] = [
    ({"type": "STRING"}, "7", "7"),
    ({"type": "CHAR", "length": 3}, "abc", "abc"),
    ({"type": "BOOLEAN"}, "true", True),
    ({"type": "TINYINT"}, "-8", -8),
    ({"type": "SMALLINT"}, "300", 300),
    ({"type": "INTEGER"}, "7", 7),
    ({"type": "BIGINT"}, "-9223372036854775808", -(2**63)),
    ({"type": "BYTES"}, "1020ff", b"\x10\x20\xff"),
    ({"type": "BINARY", "length": 2}, "0102", b"\x01\x02"),
    ({"type": "DATE"}, "2025-05-27", 20235),
    ({"type": "TIME_WITHOUT_TIME_ZONE", "precision": 3}, "01-30-02_199", 5402199),
    ({"type": "FLOAT"}, "1_5", 1.5),
    ({"type": "DOUBLE"}, "-1_0E-5", -1e-5),
    (
        {"type": "TIMESTAMP_WITHOUT_TIME_ZONE", "precision": 9},
        "2025-05-31-03-42-35_428099988",
        (1748662955428, 99988),
    ),
    ({"type": "TIMESTAMP_WITH_LOCAL_TIME_ZONE", "precision": 3}, "1969-12-31-23-59-59_999", (-1, 0)),
]


@in_event_loop
async def test_rows_inserted_into_partitions_of_every_type(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        for number, (data_type, text, value) in enumerate(PARTITION_VALUES):
            (result,), table = await insert_into_partition(tablet, f"t{number}", data_type, text)
            assert rows(table, result.values) == [(1, 2, value, None)], data_type
        for data_type, text in (({"type": "INTEGER"}, "seven"), ({"type": "DATE"}, "2025-02-30")):
            (result,), _ = await insert_into_partition(tablet, f"not_{data_type['type']}", data_type, text)
            assert result.error_code == ErrorCode.INVALID_TABLE_EXCEPTION
            assert f"'{text}' is not a partition value" in result.error_message


async def insert_into_partition(
    tablet: TabletHarness, name: str, data_type: dict[str, Any], text: str
) -> tuple[Any, KvTable]:
    """Look up (1, 2) in a partition of a new table and insert it there; returns the results of the buckets."""
    columns = (*TWO_KEYS[:2], {"name": "p", "data_type": {**data_type, "nullable": False}}, TWO_KEYS[2])
    table = KvTable.create(tablet, name, columns=columns, primary_key=["a", "b", "p"], partition_key=["p"])
    tablet.coordinator.call(ApiKey.CREATE_PARTITION, create_partition(name, False, p=text))
    tablet.service.registry.follow_catalog()
    (partition,) = table.rules.entry.partitions.values()
    request = pb.LookupRequest(table_id=table.table_id, insert_if_not_exists=True, acks=1, timeout_ms=10_000)
    request.buckets_req.add(partition_id=partition.partition_id, bucket_id=0, keys=[b"\x01\x02"])
    answer = await tablet.call(ApiKey.LOOKUP, request, api_version=1)
    assert answer.buckets_resp[0].partition_id == partition.partition_id
    return answer.buckets_resp, table


@in_event_loop
async def test_rows_inserted_by_keys_of_lakes(tmp_path: Path) -> None:
    inserting = {"insert_if_not_exists": True, "acks": -1, "timeout_ms": 10_000}
    async with TabletHarness(tmp_path) as tablet:
        paimon = KvTable.create(tablet, "paimon", properties={"table.datalake.format": "paimon"})
        found = await lookup(paimon, paimon.key((5,)), **inserting)
        assert rows(paimon, found.values) == [(5, None, None)]
        iceberg = KvTable.create(tablet, "iceberg", properties={"table.datalake.format": "iceberg"})
        refused = await lookup(iceberg, iceberg.key((5,)), **inserting)
        assert refused.error_code == ErrorCode.INVALID_TABLE_EXCEPTION
        await iceberg.upsert((5, "a", 1))
        assert rows(iceberg, (await lookup(iceberg, iceberg.key((5,)))).values) == [(5, "a", 1)]
