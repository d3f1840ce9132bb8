"""Record bytes beside the message: cut out of write requests, put into read answers, never copied through messages.

A write request is walked on the wire level. Every field except `records` is copied (they are a few bytes) into a small
skeleton message; every `records` payload stays where it is and becomes a slice of the frame. An answer with records is
built the other way: the encoded small fields and the payload pieces alternate in a list which the socket writes as is.

The walk costs Python time per field, so it gives up after some thousands: a request with so many fields has many small
payloads, and goes through the message object after all. Its payloads are copied, which is cheap for small ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import Message

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import staged_api_pb2 as staged_pb
from fluss.protocol.field_walk import LENGTH_DELIMITED, FieldWalk, TooManyFieldsError
from fluss.protocol.parsing import parse_request

MAX_WALKED_FIELDS = 8_192
# Payload pieces below this size are joined with their neighbours: a system call argument costs more than the copy.
JOIN_BELOW_BYTES = 4096

Piece = bytes | bytearray | memoryview

_RECORDS_IN_BUCKET_TAG = 3 << 3 | LENGTH_DELIMITED
_PRODUCE_BUCKET_TAG = 4 << 3 | LENGTH_DELIMITED
_PUT_KV_BUCKET_TAG = 5 << 3 | LENGTH_DELIMITED
_EMPTY_RECORDS = bytes((_RECORDS_IN_BUCKET_TAG, 0))
_EMPTY = memoryview(b"")


def split_produce(body: memoryview) -> tuple[pb.ProduceLogRequest, list[memoryview]]:
    """A PRODUCE_LOG body as a message with empty `records` and, per bucket entry, the record bytes in place."""
    message: pb.ProduceLogRequest
    message, records = _split(pb.ProduceLogRequest, body, _PRODUCE_BUCKET_TAG)
    return message, records


def split_stage(body: memoryview) -> tuple[staged_pb.StageLogRequest, list[memoryview]]:
    """The same for STAGE_LOG, whose bucket entries are those of PRODUCE_LOG."""
    message: staged_pb.StageLogRequest
    message, records = _split(staged_pb.StageLogRequest, body, _PRODUCE_BUCKET_TAG)
    return message, records


def split_put_kv(body: memoryview) -> tuple[pb.PutKvRequest, list[memoryview]]:
    """The same for PUT_KV."""
    message: pb.PutKvRequest
    message, records = _split(pb.PutKvRequest, body, _PUT_KV_BUCKET_TAG)
    return message, records


def _split(request_type: type[Message], body: memoryview, bucket_tag: int) -> tuple[Any, list[memoryview]]:
    try:
        skeleton, records = _walk(body, bucket_tag)
    except TooManyFieldsError:
        return _parse(request_type, body)
    return parse_request(request_type, skeleton), records


def _parse(request_type: type[Message], body: memoryview) -> tuple[Any, list[memoryview]]:
    message = parse_request(request_type, body)
    records = []
    for bucket in message.buckets_req:
        records.append(memoryview(bytearray(bucket.records)))  # whoever stores them writes into them
        bucket.records = b""
    return message, records


def _walk(body: memoryview, bucket_tag: int) -> tuple[bytearray, list[memoryview]]:
    walk = FieldWalk(body, "a write request", MAX_WALKED_FIELDS)
    skeleton = bytearray()
    records: list[memoryview] = []
    position, end = 0, len(body)
    while position < end:
        tag, start, stop = walk.field(position, end)
        if tag == bucket_tag:
            entry, payload = _split_bucket(walk, start, stop)
            skeleton.append(tag)
            skeleton += encode_varint(len(entry))
            skeleton += entry
            records.append(payload)
        else:
            skeleton += body[position:stop]
        position = stop
    return skeleton, records


def _split_bucket(walk: FieldWalk, position: int, end: int) -> tuple[bytearray, memoryview]:
    """One bucket entry without its payload. A missing payload stays missing: the message check refuses it."""
    entry = bytearray()
    payload = _EMPTY
    seen = False
    while position < end:
        tag, start, stop = walk.field(position, end)
        if tag == _RECORDS_IN_BUCKET_TAG:
            payload = walk.body[start:stop]  # the last one counts, as in every protobuf reader
            seen = True
        else:
            entry += walk.body[position:stop]
        position = stop
    if seen:
        entry += _EMPTY_RECORDS
    return entry, payload


def encode_varint(value: int) -> bytes:
    """An unsigned protobuf varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class BucketRecords(NamedTuple):
    """One bucket of a FETCH_LOG answer: the message without `records`, and the record bytes as pieces.

    `records` None leaves the field out (errors, remote segments); an empty list sends it with length zero.
    """

    message: pb.PbFetchLogRespForBucket
    records: Sequence[Piece] | None


class _Pieces:
    """Collects small bytes into joined pieces and keeps big payloads as they are."""

    __slots__ = ("finished", "small")

    def __init__(self) -> None:
        self.finished: list[Piece] = []
        self.small = bytearray()

    def add(self, piece: Piece) -> None:
        if len(piece) < JOIN_BELOW_BYTES:
            self.small += piece
        else:
            self.flush()
            self.finished.append(piece)

    def flush(self) -> list[Piece]:
        if self.small:
            self.finished.append(self.small)
            self.small = bytearray()
        return self.finished


def pieces_size(pieces: Iterable[Piece]) -> int:
    """Total bytes of the pieces (one-dimensional byte buffers)."""
    return sum(map(len, pieces))


def fetch_response_pieces(tables: Iterable[tuple[int, Sequence[BucketRecords]]]) -> list[Piece]:
    """The encoded `FetchLogResponse` for (table id, buckets) pairs, record bytes as separate pieces."""
    out = _Pieces()
    for table_id, buckets in tables:
        table_head = pb.PbFetchLogRespForTable(table_id=table_id).SerializeToString()
        heads = [_bucket_head(bucket) for bucket in buckets]
        out_size = len(table_head)
        for (_, inner_size), prefix in heads:
            out_size += len(prefix) + inner_size
        out.add(b"\x0a" + encode_varint(out_size) + table_head)
        for ((small, _), prefix), bucket in zip(heads, buckets, strict=True):
            out.add(prefix)
            out.add(small)
            for piece in bucket.records or ():
                out.add(piece)
    return out.flush()


def _bucket_head(bucket: BucketRecords) -> tuple[tuple[bytes, int], bytes]:
    """((encoded fields up to the payload, size of them with the payload), field prefix in the table message)."""
    small = bucket.message.SerializeToString()
    size = len(small)
    if bucket.records is not None:
        payload_size = pieces_size(bucket.records)
        small += b"\x42" + encode_varint(payload_size)  # field 8; its place among the fields is free on the wire
        size = len(small) + payload_size
    return (small, size), b"\x12" + encode_varint(size)


def limit_scan_response_pieces(message: pb.LimitScanResponse, records: Sequence[Piece]) -> list[Piece]:
    """The encoded `LimitScanResponse`: `message` has everything but `records`."""
    out = _Pieces()
    out.add(message.SerializeToString() + b"\x22" + encode_varint(pieces_size(records)))
    for piece in records:
        out.add(piece)
    return out.flush()


def scan_kv_response_pieces(message: pb.ScanKvResponse, records: Sequence[Piece]) -> list[Piece]:
    """The encoded `ScanKvResponse`: `message` has everything but `records`."""
    out = _Pieces()
    out.add(message.SerializeToString() + b"\x2a" + encode_varint(pieces_size(records)))
    for piece in records:
        out.add(piece)
    return out.flush()
