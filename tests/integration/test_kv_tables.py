"""Primary-key tables over the wire: put, look up, scan, read the changelog, restart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from fluss.codec.arrow.compression import NO_COMPRESSION
from fluss.codec.batches.changelog import ChangelogCodec
from fluss.codec.batches.kv_batch import encode_kv_batch
from fluss.codec.batches.kv_values import ValueReader
from fluss.codec.batches.log_batch import iter_batches
from fluss.codec.batches.value_batch import decode_value_batch
from fluss.codec.keys.encoding import KeyEncoding, encode_key
from fluss.codec.rows.columns import RowFormat
from fluss.codec.rows.compacted import encode_compacted_row
from fluss.errors import ErrorCode
from fluss.model import types as t
from fluss.model.schema import Column, Schema
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tests.support.servers.log_cluster import LogCluster
from tools.servers.messages import text_column

COLUMNS = ({"name": "id", "data_type": {"type": "INTEGER", "nullable": False}}, text_column("name"))
SCHEMA = Schema((Column("id", t.IntType(nullable=False), column_id=0), Column("name", t.StringType(), column_id=1)))
READER = ValueReader({1: SCHEMA}, 1, RowFormat.COMPACTED)
Row = tuple[int, str | None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogCluster]:
    with LogCluster(tmp_path_factory.mktemp("server")) as cluster:
        yield cluster


def create(cluster: LogCluster, name: str) -> int:
    return cluster.create_table(name, columns=COLUMNS, primary_key=["id"])


def key(number: int) -> bytes:
    return encode_key([number], SCHEMA.data_types[:1], KeyEncoding.COMPACTED)


def put(cluster: LogCluster, table: int, rows: Sequence[Row], deleted: Sequence[int] = ()) -> Any:
    """Rows, then deletes, as one batch of bucket 0."""
    keys = [key(row[0]) for row in rows] + [key(number) for number in deleted]
    encoded = [encode_compacted_row(row, SCHEMA.data_types) for row in rows]
    request = pb.PutKvRequest(acks=-1, table_id=table, timeout_ms=10_000)
    request.buckets_req.add(bucket_id=0, records=encode_kv_batch(keys, [*encoded, *[None] * len(deleted)], 1))
    return cluster.tablet.call(ApiKey.PUT_KV, request, 2).buckets_resp[0]


def look_up(cluster: LogCluster, table: int, numbers: Sequence[int]) -> list[Row | None]:
    request = pb.LookupRequest(table_id=table)
    request.buckets_req.add(bucket_id=0, keys=[key(number) for number in numbers])
    (result,) = cluster.tablet.call(ApiKey.LOOKUP, request, 1).buckets_resp
    assert not result.HasField("error_code"), result
    return [_row(value.values) if value.HasField("values") else None for value in result.values]


def _row(value: bytes) -> Row:
    number, name = READER.row(value)
    return number, name


def scan(cluster: LogCluster, table: int, batch_bytes: int) -> tuple[list[Row], int, int]:
    """All rows, the changelog offset that belongs to them, and the number of calls."""
    request = pb.ScanKvRequest(call_seq_id=0, batch_size_bytes=batch_bytes)
    request.bucket_scan_req.table_id, request.bucket_scan_req.bucket_id = table, 0
    rows: list[Row] = []
    offset = calls = -1
    while True:
        calls += 1
        answer = cluster.tablet.call(ApiKey.SCAN_KV, request)
        assert not answer.HasField("error_code"), answer
        if answer.HasField("log_offset"):
            offset = answer.log_offset
        if answer.HasField("records"):
            rows += map(_row, decode_value_batch(answer.records).to_pylist())
        if not answer.has_more_results:
            return rows, offset, calls + 1
        request = pb.ScanKvRequest(scanner_id=answer.scanner_id, call_seq_id=calls + 1, batch_size_bytes=batch_bytes)


def changelog(cluster: LogCluster, table: int, offset: int = 0) -> list[tuple[int, Row]]:
    """Change types and rows from an offset on."""
    codec = ChangelogCodec({1: SCHEMA}, 1, "ARROW", NO_COMPRESSION)
    found: list[tuple[int, Row]] = []
    end = cluster.latest(table)
    while offset < end:
        records = cluster.tablet.fetch(table, 0, offset).records
        for position, header in iter_batches(records):
            columns, kinds = codec.decode(records, position, header=header)
            rows = zip(*(column.to_pylist() for column in columns), strict=True)
            found += zip(kinds, rows, strict=True)
            offset = header.next_offset
    return found


def test_the_way_of_a_row(cluster: LogCluster) -> None:
    table = create(cluster, "way")
    assert put(cluster, table, [(1, "a"), (2, None)]).log_end_offset == 2
    assert put(cluster, table, [(1, "b"), (3, "c")], deleted=[2, 9]).log_end_offset == 6
    assert look_up(cluster, table, [3, 2, 1]) == [(3, "c"), None, (1, "b")]
    assert scan(cluster, table, 1 << 20) == ([(1, "b"), (3, "c")], 6, 1)
    assert changelog(cluster, table) == [
        (1, (1, "a")),
        (1, (2, None)),
        (2, (1, "a")),
        (3, (1, "b")),
        (1, (3, "c")),
        (4, (2, None)),
    ]


def test_a_scan_and_the_changes_after_it_are_the_table(cluster: LogCluster) -> None:
    table = create(cluster, "scan")
    put(cluster, table, [(number, "x" * 50) for number in range(5000)])
    rows, offset, calls = scan(cluster, table, 50_000)
    assert (len(rows), offset) == (5000, 5000)
    assert calls > 5
    put(cluster, table, [(7, "new")], deleted=[8])
    state = dict(rows)
    for kind, (number, name) in changelog(cluster, table, offset):
        if kind in (1, 3):
            state[number] = name
        elif kind == 4:
            del state[number]
    assert state == dict(scan(cluster, table, 1 << 20)[0])


def test_rows_survive_restarts(tmp_path: Any) -> None:
    with LogCluster(tmp_path) as cluster:
        table = create(cluster, "t")
        put(cluster, table, [(number, "first") for number in range(300)])
        for name in ("second", "third"):
            put(cluster, table, [(number, name) for number in range(0, 300, 2)], deleted=[299])
            before = scan(cluster, table, 1 << 20)
            cluster.restart()
            assert scan(cluster, table, 1 << 20) == before
            assert look_up(cluster, table, [0, 1, 299]) == [(0, name), (1, "first"), None]


def test_kv_calls_on_log_tables(cluster: LogCluster) -> None:
    table = cluster.create_table("log")
    assert put(cluster, table, [(1, "a")]).error_code == 20
    request = pb.PrefixLookupRequest(table_id=table)
    request.buckets_req.add(bucket_id=0, keys=[b"\x01"])
    assert cluster.tablet.call(ApiKey.PREFIX_LOOKUP, request, 1).buckets_resp[0].error_code == 20


def test_a_key_of_no_bytes_is_refused_and_not_as_damage(cluster: LogCluster) -> None:
    """Other clients send one for an empty text in a table with keys for Iceberg; a damaged batch would come again."""
    table = create(cluster, "no_bytes")
    request = pb.PutKvRequest(acks=-1, table_id=table, timeout_ms=10_000)
    row = encode_compacted_row((1, "a"), SCHEMA.data_types)
    request.buckets_req.add(bucket_id=0, records=encode_kv_batch([b""], [row], 1))
    answer = cluster.tablet.call(ApiKey.PUT_KV, request, 2).buckets_resp[0]
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "must not be an empty string" in answer.error_message
    put(cluster, table, [(1, "a")])
    assert look_up(cluster, table, [1]) == [(1, "a")]
