"""Record bytes kept outside of messages, for servers: cut out of write requests, and inserted into answers to reads.

A write request is parsed on the wire level. Every field except `records` is copied (they are a few bytes) into a small
skeleton message; every `records` payload becomes a slice of the frame. An answer with records is built the
other way: encoded small fields and payloads alternate in a list of byte strings that the socket writes as they are.

Each field costs Python time, so a request with more than `MAX_WALKED_FIELDS` of them is parsed as an ordinary protobuf
message instead. It has many small payloads, which are cheap to copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import Message

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import staged_api_pb2 as staged_pb
from fluss.protocol.parsing import parse_request
from fluss.protocol.wire_fields import LENGTH_DELIMITED, TooManyFieldsError, WireFields

MAX_WALKED_FIELDS = 8_192
# Smaller payloads are joined with their neighbours: one more buffer for the system call costs more than the copy.
JOIN_BELOW_BYTES = 4096

BytesLike = bytes | bytearray | memoryview

_RECORDS_IN_BUCKET_TAG = 3 << 3 | LENGTH_DELIMITED
_PRODUCE_BUCKET_TAG = 4 << 3 | LENGTH_DELIMITED
_PUT_KV_BUCKET_TAG = 5 << 3 | LENGTH_DELIMITED
_EMPTY_RECORDS = bytes((_RECORDS_IN_BUCKET_TAG, 0))
_EMPTY = memoryview(b"")


def split_produce(body: memoryview) -> tuple[pb.ProduceLogRequest, list[memoryview]]:
    """A PRODUCE_LOG body as a message with empty `records`, and the record bytes of each bucket entry as slices."""
    message: pb.ProduceLogRequest
    message, records = _split(pb.ProduceLogRequest, body, _PRODUCE_BUCKET_TAG)
    return message, records


def split_stage(body: memoryview) -> tuple[staged_pb.StageLogRequest, list[memoryview]]:
    """Split a STAGE_LOG body like `split_produce`; its bucket entries are those of PRODUCE_LOG."""
    message: staged_pb.StageLogRequest
    message, records = _split(staged_pb.StageLogRequest, body, _PRODUCE_BUCKET_TAG)
    return message, records


def split_put_kv(body: memoryview) -> tuple[pb.PutKvRequest, list[memoryview]]:
    """Split a PUT_KV body like `split_produce`."""
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
        records.append(memoryview(bytearray(bucket.records)))  # writable: the log writes offsets into the batches
        bucket.records = b""
    return message, records


def _walk(body: memoryview, bucket_tag: int) -> tuple[bytearray, list[memoryview]]:
    walk = WireFields(body, "a write request", MAX_WALKED_FIELDS)
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


def _split_bucket(walk: WireFields, position: int, end: int) -> tuple[bytearray, memoryview]:
    """A bucket entry without its payload, and the payload. `parse_request` refuses an entry without one later."""
    entry = bytearray()
    payload = _EMPTY
    seen = False
    while position < end:
        tag, start, stop = walk.field(position, end)
        if tag == _RECORDS_IN_BUCKET_TAG:
            payload = walk.body[start:stop]  # of repeated fields the last one counts, as in every protobuf parser
            seen = True
        else:
            entry += walk.body[position:stop]
        position = stop
    if seen:
        entry += _EMPTY_RECORDS
    return entry, payload


def encode_varint(value: int) -> bytes:
    """Encode an unsigned number as a protobuf varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class BucketRecords(NamedTuple):
    """One bucket of a FETCH_LOG answer: the message without `records`, and the record bytes.

    If `records` is None the field is omitted (errors, remote segments); an empty list sends it with length zero.
    """

    message: pb.PbFetchLogRespForBucket
    records: Sequence[BytesLike] | None


class _Pieces:
    """Collects byte strings: joins small ones, keeps large payloads as they are."""

    __slots__ = ("finished", "small")

    def __init__(self) -> None:
        self.finished: list[BytesLike] = []
        self.small = bytearray()

    def add(self, piece: BytesLike) -> None:
        if len(piece) < JOIN_BELOW_BYTES:
            self.small += piece
        else:
            self.flush()
            self.finished.append(piece)

    def flush(self) -> list[BytesLike]:
        if self.small:
            self.finished.append(self.small)
            self.small = bytearray()
        return self.finished


def pieces_size(pieces: Iterable[BytesLike]) -> int:
    """The total number of bytes in `pieces`, which are one-dimensional byte buffers."""
    return sum(map(len, pieces))


def fetch_response_pieces(tables: Iterable[tuple[int, Sequence[BucketRecords]]]) -> list[BytesLike]:
    """The encoded `FetchLogResponse` for (table id, buckets) pairs, with record bytes as separate pieces."""
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
    """((encoded fields before the payload, their size including the payload), field prefix in the table message)."""
    small = bucket.message.SerializeToString()
    size = len(small)
    if bucket.records is not None:
        payload_size = pieces_size(bucket.records)
        small += b"\x42" + encode_varint(payload_size)  # field 8; fields may come in any order on the wire
        size = len(small) + payload_size
    return (small, size), b"\x12" + encode_varint(size)


def limit_scan_response_pieces(message: pb.LimitScanResponse, records: Sequence[BytesLike]) -> list[BytesLike]:
    """The encoded `LimitScanResponse`: `message` has all fields but `records`."""
    out = _Pieces()
    out.add(message.SerializeToString() + b"\x22" + encode_varint(pieces_size(records)))
    for piece in records:
        out.add(piece)
    return out.flush()


def scan_kv_response_pieces(message: pb.ScanKvResponse, records: Sequence[BytesLike]) -> list[BytesLike]:
    """The encoded `ScanKvResponse`: `message` has all fields but `records`."""
    out = _Pieces()
    out.add(message.SerializeToString() + b"\x2a" + encode_varint(pieces_size(records)))
    for piece in records:
        out.add(piece)
    return out.flush()
