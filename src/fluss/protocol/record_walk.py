"""Record bytes beside the message: cut out of write requests, put into read answers, never copied through messages.

A write request is walked on the wire level. Every field except `records` is copied (they are a few bytes) into a small
skeleton message; every `records` payload stays where it is and becomes a slice of the frame. An answer with records is
built the other way: the encoded small fields and the payload pieces alternate in a list which the socket writes as is.

The walk costs Python time per field, so the number of fields is limited: a frame full of empty entries must not hold
the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.parsing import parse_request

MAX_WALKED_FIELDS = 131_072
# Payload pieces below this size are joined with their neighbours: a system call argument costs more than the copy.
JOIN_BELOW_BYTES = 4096

Piece = bytes | bytearray | memoryview

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_RECORDS_IN_BUCKET_TAG = 3 << 3 | _LENGTH_DELIMITED
_PRODUCE_BUCKET_TAG = 4 << 3 | _LENGTH_DELIMITED
_PUT_KV_BUCKET_TAG = 5 << 3 | _LENGTH_DELIMITED
_EMPTY_RECORDS = bytes((_RECORDS_IN_BUCKET_TAG, 0))
_EMPTY = memoryview(b"")


def split_produce(body: memoryview) -> tuple[pb.ProduceLogRequest, list[memoryview]]:
    """A PRODUCE_LOG body as a message with empty `records` and, per bucket entry, the record bytes in place."""
    skeleton, records = _split(body, _PRODUCE_BUCKET_TAG)
    message: pb.ProduceLogRequest = parse_request(pb.ProduceLogRequest, skeleton)
    return message, records


def split_put_kv(body: memoryview) -> tuple[pb.PutKvRequest, list[memoryview]]:
    """The same for PUT_KV."""
    skeleton, records = _split(body, _PUT_KV_BUCKET_TAG)
    message: pb.PutKvRequest = parse_request(pb.PutKvRequest, skeleton)
    return message, records


class _Walk:
    """A cursor over wire fields; counts them."""

    __slots__ = ("body", "fields")

    def __init__(self, body: memoryview) -> None:
        self.body = body
        self.fields = 0

    def varint(self, position: int, end: int) -> tuple[int, int]:
        """Value and next position."""
        body = self.body
        result = shift = 0
        while position < end:
            byte = body[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result, position
            shift += 7
            if shift >= 70:
                break
        raise _corrupt("a number is cut off or too long")

    def field(self, position: int, end: int) -> tuple[int, int, int]:
        """Tag of the field at `position`, where its payload starts, where the field ends."""
        self.fields += 1
        if self.fields > MAX_WALKED_FIELDS:
            raise _corrupt(f"more than {MAX_WALKED_FIELDS} fields in one write request")
        tag, start = self.varint(position, end)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            length, start = self.varint(start, end)
            stop = start + length
        elif kind == _VARINT:
            stop = self.varint(start, end)[1]
        elif kind == _FIXED64:
            stop = start + 8
        elif kind == _FIXED32:
            stop = start + 4
        else:
            raise _corrupt(f"unknown wire type {kind}")
        if stop > end:
            raise _corrupt("a field is longer than its message")
        return tag, start, stop


def _corrupt(detail: str) -> FlussError:
    return FlussError(f"the body is not a write request: {detail}", ErrorCode.CORRUPT_MESSAGE)


def _split(body: memoryview, bucket_tag: int) -> tuple[bytearray, list[memoryview]]:
    walk = _Walk(body)
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


def _split_bucket(walk: _Walk, position: int, end: int) -> tuple[bytearray, memoryview]:
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
