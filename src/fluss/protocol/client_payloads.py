"""Record bytes kept outside of messages, for clients: cut out of answers, and inserted into write requests.

`server_payloads` is the counterpart for servers. A fetch answer is parsed on the wire level: the small fields go into a
skeleton message, and every `records` payload remains a slice of the frame. A write request is built as a list of byte
strings, among them the caller's own record buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import staged_api_pb2 as staged_pb
from fluss.protocol.server_payloads import BytesLike, encode_varint

MAX_WALKED_FIELDS = 1_048_576

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_TABLE_TAG = 1 << 3 | _LENGTH_DELIMITED
_BUCKET_TAG = 2 << 3 | _LENGTH_DELIMITED
_RECORDS_TAG = 8 << 3 | _LENGTH_DELIMITED
_SCAN_RECORDS_TAG = 5 << 3 | _LENGTH_DELIMITED
_PRODUCE_BUCKET_TAG = bytes((4 << 3 | _LENGTH_DELIMITED,))
_PUT_KV_BUCKET_TAG = bytes((5 << 3 | _LENGTH_DELIMITED,))
_WRITE_RECORDS_TAG = bytes((3 << 3 | _LENGTH_DELIMITED,))


class FetchAnswer(NamedTuple):
    """A fetch answer without its `records` fields, and the records of all its buckets in order.

    `records[i]` belongs to the i-th bucket entry, counted over all tables; it is None if that entry has no records.
    """

    message: pb.FetchLogResponse
    records: list[memoryview | None]


def split_fetch_response(body: memoryview) -> FetchAnswer:
    """Split a FETCH_LOG answer without copying record bytes. `FlussError` 3 if it is not valid."""
    walk = _Walk(body)
    skeleton = bytearray()
    records: list[memoryview | None] = []
    position, end = 0, len(body)
    while position < end:
        tag, start, stop = walk.field(position, end)
        if tag == _TABLE_TAG:
            table = _split_table(walk, start, stop, records)
            skeleton.append(tag)
            skeleton += encode_varint(len(table))
            skeleton += table
        else:
            skeleton += body[position:stop]
        position = stop
    try:
        message = pb.FetchLogResponse.FromString(bytes(skeleton))
    except DecodeError:
        raise _corrupt("its fields cannot be decoded") from None
    return FetchAnswer(message, records)


def _split_table(walk: _Walk, position: int, end: int, records: list[memoryview | None]) -> bytearray:
    table = bytearray()
    while position < end:
        tag, start, stop = walk.field(position, end)
        if tag == _BUCKET_TAG:
            bucket, payload = _split_bucket(walk, start, stop)
            table.append(tag)
            table += encode_varint(len(bucket))
            table += bucket
            records.append(payload)
        else:
            table += walk.body[position:stop]
        position = stop
    return table


def _split_bucket(walk: _Walk, position: int, end: int) -> tuple[bytearray, memoryview | None]:
    bucket = bytearray()
    payload: memoryview | None = None
    while position < end:
        tag, start, stop = walk.field(position, end)
        if tag == _RECORDS_TAG:
            payload = walk.body[start:stop]
        else:
            bucket += walk.body[position:stop]
        position = stop
    return bucket, payload


class ScanAnswer(NamedTuple):
    """A SCAN_KV answer without its `records` field, and the records; None if the field was not set."""

    message: pb.ScanKvResponse
    records: memoryview | None


def split_scan_response(body: memoryview) -> ScanAnswer:
    """Split a SCAN_KV answer without copying the rows. `FlussError` 3 if it is not valid."""
    walk = _Walk(body)
    skeleton = bytearray()
    records: memoryview | None = None
    position, end = 0, len(body)
    while position < end:
        tag, start, stop = walk.field(position, end)
        if tag == _SCAN_RECORDS_TAG:
            records = body[start:stop]
        else:
            skeleton += body[position:stop]
        position = stop
    try:
        return ScanAnswer(pb.ScanKvResponse.FromString(bytes(skeleton)), records)
    except DecodeError:
        raise _corrupt("its fields cannot be decoded") from None


class _Walk:
    """Reads wire fields and counts them, so that a hostile answer cannot occupy the I/O thread for long."""

    __slots__ = ("body", "fields")

    def __init__(self, body: memoryview) -> None:
        self.body = body
        self.fields = 0

    def varint(self, position: int, end: int) -> tuple[int, int]:
        """Decode the varint at `position`; return its value and the position after it."""
        body = self.body
        result = shift = 0
        while position < end and shift < 70:
            byte = body[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result, position
            shift += 7
        raise _corrupt("a number is cut off or too long")

    def field(self, position: int, end: int) -> tuple[int, int, int]:
        """The tag of the field at `position`, the start of its payload, and the end of the field."""
        self.fields += 1
        if self.fields > MAX_WALKED_FIELDS:
            raise _corrupt(f"it has more than {MAX_WALKED_FIELDS} fields; fetch fewer buckets at once")
        tag, start = self.varint(position, end)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            length, start = self.varint(start, end)
            stop = start + length
        elif kind == _VARINT:
            stop = self.varint(start, end)[1]
        elif kind in (_FIXED32, _FIXED64):
            stop = start + (4 if kind == _FIXED32 else 8)
        else:
            raise _corrupt(f"unknown wire type {kind}")
        if stop > end:
            raise _corrupt("a field is longer than its message")
        return tag, start, stop


def _corrupt(detail: str) -> FlussError:
    return FlussError(f"the server's answer is not a valid fetch answer: {detail}", ErrorCode.CORRUPT_MESSAGE)


WriteRequest = pb.ProduceLogRequest | pb.PutKvRequest | staged_pb.StageLogRequest


def write_request_pieces(message: WriteRequest, records: Sequence[BytesLike | Sequence[BytesLike]]) -> list[BytesLike]:
    """Encode a write request. `message` has no `records`: `records[i]` is put into the i-th bucket entry uncopied."""
    if len(records) != len(message.buckets_req):
        raise ValueError(
            f"each entry needs one record buffer, got {len(records)} for {len(message.buckets_req)} bucket entries"
        )
    if isinstance(message, pb.ProduceLogRequest):
        tag = _PRODUCE_BUCKET_TAG
        head = pb.ProduceLogRequest(acks=message.acks, table_id=message.table_id, timeout_ms=message.timeout_ms)
        pieces: list[BytesLike] = [head.SerializeToString()]
    else:
        tag = _PUT_KV_BUCKET_TAG if isinstance(message, pb.PutKvRequest) else _PRODUCE_BUCKET_TAG
        other_head = type(message)()
        other_head.CopyFrom(message)  # type: ignore[arg-type]  # it is of the same type
        other_head.ClearField("buckets_req")
        pieces = [other_head.SerializeToString()]
    for bucket, payload in zip(message.buckets_req, records, strict=True):
        parts: Sequence[BytesLike] = (payload,) if isinstance(payload, (bytes, bytearray, memoryview)) else payload
        payload_bytes = sum(map(_byte_length, parts))
        small = bucket.SerializePartialToString() + _WRITE_RECORDS_TAG + encode_varint(payload_bytes)
        pieces.append(tag + encode_varint(len(small) + payload_bytes) + small)
        pieces.extend(parts)
    return pieces


def _byte_length(piece: BytesLike) -> int:
    return piece.nbytes if isinstance(piece, memoryview) else len(piece)
