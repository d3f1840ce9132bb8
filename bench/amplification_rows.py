"""Requests whose cost depends on their contents: rows, keys and documents. They complement `nasty_requests`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pyarrow as pa

from bench.nasty_requests import TAKEN_ENTRIES, NastyRequest
from fluss.codec.arrow.compression import Compression, CompressionKind
from fluss.codec.batches.arrow_batch import encode_arrow_batch
from fluss.codec.batches.kv_batch import encode_kv_batch
from fluss.codec.keys.encoding import KeyEncoding, encode_key
from fluss.model import types as t
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey

_SMALL_ROW = b"\2"  # in the compacted format: the second column is null, four bytes of the first follow as a varint
_ROW_OVERHEAD_BYTES = 10
_COLUMN_BYTES = 90


def _key(number: int) -> bytes:
    return encode_key([number], [t.IntType()], KeyEncoding.COMPACTED)


def _put(table_id: int, size: int) -> Iterator[NastyRequest]:
    count = (size - 1000) // (_ROW_OVERHEAD_BYTES + 3)
    keys = [_key(number) for number in range(count)]
    for title, batch in (
        ("small rows", encode_kv_batch(keys, [_SMALL_ROW + key for key in keys], 1)),
        ("deletes", encode_kv_batch(keys, [None] * count, 1)),
        ("one key many times", encode_kv_batch(keys[:1] * count, [_SMALL_ROW + keys[0]] * count, 1)),
    ):
        request = pb.PutKvRequest(table_id=table_id, acks=-1, timeout_ms=60_000)
        request.buckets_req.add(bucket_id=0, records=batch)
        yield NastyRequest(title, request.SerializeToString())
    request = pb.PutKvRequest(table_id=table_id, acks=-1, timeout_ms=60_000)
    one = encode_kv_batch(keys[:1], [_SMALL_ROW + keys[0]], 1)
    for _ in range(size // (len(one) + 16)):
        request.buckets_req.add(bucket_id=0, records=one)
    yield NastyRequest("one bucket, a row each time", request.SerializeToString())


def one_row() -> bytes:
    """Encode a batch of one row for the log table."""
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("text", pa.string())])
    one = pa.record_batch([pa.array([1], pa.int32()), pa.array([None], pa.string())], schema=schema)
    return bytes(encode_arrow_batch(one, schema_id=1, compression=Compression(CompressionKind.NONE)))


def _produce(table_id: int, size: int) -> Iterator[NastyRequest]:
    batch = one_row()
    count = size // (len(batch) + 8)
    request = pb.ProduceLogRequest(table_id=table_id, acks=-1, timeout_ms=60_000)
    for _ in range(count):
        request.buckets_req.add(bucket_id=0, records=batch)
    yield NastyRequest("one bucket, a row each time", request.SerializeToString())
    request = pb.ProduceLogRequest(table_id=table_id, acks=-1, timeout_ms=60_000)
    request.buckets_req.add(bucket_id=0, records=batch * count)
    yield NastyRequest("many batches of a row", request.SerializeToString())


def _lookup(table_id: int, size: int) -> Iterator[NastyRequest]:
    for title, key in (("one key many times", _key(1)), ("a key that is not there", b"\xff\xff\xff\xff\x07")):
        request = pb.LookupRequest(table_id=table_id)
        request.buckets_req.add(bucket_id=0, keys=[key] * (size // (len(key) + 3)))
        yield NastyRequest(title, request.SerializeToString())
    request = pb.LookupRequest(table_id=table_id)
    for number in range(size // 12):
        request.buckets_req.add(bucket_id=0, keys=[_key(number % 100)])
    yield NastyRequest("one bucket, a key each time", request.SerializeToString())


def _prefixes(table_id: int, size: int) -> Iterator[NastyRequest]:
    request = pb.PrefixLookupRequest(table_id=table_id)
    request.buckets_req.add(bucket_id=0, keys=[b"\1"] * (size // 3))
    yield NastyRequest("a prefix of many rows", request.SerializeToString())
    del request.buckets_req[0].keys[TAKEN_ENTRIES:]
    yield NastyRequest(f"a prefix of many rows {TAKEN_ENTRIES} times", request.SerializeToString())


def _table_of_many_columns(table_id: int, size: int) -> Iterator[NastyRequest]:
    columns = [
        {"name": f"c{number}", "data_type": {"type": "INTEGER"}, "id": number}
        for number in range(size // _COLUMN_BYTES)
    ]
    document = {
        "version": 1,
        "schema": {"version": 1, "columns": columns, "highest_field_id": len(columns) - 1},
        "partition_key": [],
        "bucket_key": [],
        "bucket_count": 1,
        "properties": {},
        "custom_properties": {},
    }
    path = pb.PbTablePath(database_name="fluss", table_name="wide")
    request = pb.CreateTableRequest(table_path=path, table_json=json.dumps(document).encode(), ignore_if_exists=True)
    yield NastyRequest("many columns", request.SerializeToString())
    document |= {"schema": {**document["schema"], "columns": columns[:1], "highest_field_id": 0}}  # type: ignore[dict-item]
    document |= {"custom_properties": {f"p{number}": "" for number in range(size // 14)}}
    request.table_json = json.dumps(document).encode()
    request.table_path.table_name = "described"
    yield NastyRequest("many properties", request.SerializeToString())


def _permissions(table_id: int, size: int) -> Iterator[NastyRequest]:
    everything = pb.PbAclFilter(resource_type=1, operation_type=1, permission_type=1)
    request = pb.DropAclsRequest(acl_filter=[everything] * TAKEN_ENTRIES)
    yield NastyRequest("filters that match all", request.SerializeToString())
    nothing = pb.PbAclFilter(resource_type=1, operation_type=1, permission_type=1, host="nowhere")
    request = pb.DropAclsRequest(acl_filter=[nothing] * TAKEN_ENTRIES)
    yield NastyRequest("filters that match nothing", request.SerializeToString())


_REQUESTS: dict[ApiKey, Callable[[int, int], Iterator[NastyRequest]]] = {
    ApiKey.PUT_KV: _put,
    ApiKey.PRODUCE_LOG: _produce,
    ApiKey.LOOKUP: _lookup,
    ApiKey.PREFIX_LOOKUP: _prefixes,
    ApiKey.DROP_ACLS: _permissions,
    ApiKey.CREATE_TABLE: _table_of_many_columns,
}


def row_requests(key: ApiKey, table_id: int, size: int) -> Iterator[NastyRequest]:
    """The requests of a key beyond those made from its message."""
    build = _REQUESTS.get(key)
    return iter(()) if build is None else build(table_id, size)
