"""Frames: the length-prefixed envelope of every message in both directions. Pure functions over buffers.

Request:  int32 length | int16 api_key | int16 api_version | int32 request_id | body   (length excludes itself)
Answer:   int32 length | int8 type     | int32 request_id  | body   type 0 success, 1 error
Failure:  int32 length | int8 2        | body   no request id; read by clients, never sent by our server

All integers are big-endian and signed. The body of an error is an `ErrorResponse`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb

LENGTH_BYTES = 4
REQUEST_HEADER_BYTES = 8  # the part between the length and the body
RESPONSE_HEADER_BYTES = 5
MAX_FRAME_LENGTH = 2**31 - 1
MAX_ERROR_TEXT_CHARACTERS = 2048

TYPE_SUCCESS = 0
TYPE_ERROR = 1
TYPE_SERVER_FAILURE = 2

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">ihhi")
_REQUEST_HEADER = struct.Struct(">hhi")
_RESPONSE = struct.Struct(">ibi")

Buffer = bytes | bytearray | memoryview


class RequestHeader(NamedTuple):
    """The fields between the length and the body of a request."""

    api_key: int
    api_version: int
    request_id: int


class Response(NamedTuple):
    """A parsed answer frame. `request_id` is None for a server failure."""

    type: int
    request_id: int | None
    body: memoryview


def read_length(buffer: Buffer, position: int = 0) -> int:
    """The length of the frame that starts at `position`. It is not checked: callers have limits of their own."""
    length: int = _LENGTH.unpack_from(buffer, position)[0]
    return length


def read_request_header(buffer: Buffer, position: int = LENGTH_BYTES) -> RequestHeader:
    """The header that follows the length field of a request frame."""
    return RequestHeader._make(_REQUEST_HEADER.unpack_from(buffer, position))


def request_frame(api_key: int, api_version: int, request_id: int, body: bytes) -> bytes:
    """A complete request frame: length, header and body."""
    return _REQUEST.pack(REQUEST_HEADER_BYTES + len(body), api_key, api_version, request_id) + body


def success_prefix(request_id: int, body_bytes: int) -> bytes:
    """The frame bytes before the body of a success answer; the parts of the body are sent after it, uncopied."""
    length = RESPONSE_HEADER_BYTES + body_bytes
    if length > MAX_FRAME_LENGTH:
        raise FlussError(
            f"an answer of {body_bytes} bytes is too large for a frame; request less at once",
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )
    return _RESPONSE.pack(length, TYPE_SUCCESS, request_id)


def success_frame(request_id: int, body: bytes) -> bytes:
    """A complete success frame: length, header and body."""
    return _RESPONSE.pack(RESPONSE_HEADER_BYTES + len(body), TYPE_SUCCESS, request_id) + body


def error_frame(request_id: int, error_code: int, error_message: str | None = None) -> bytes:
    """A complete error frame for one request. The connection remains usable after it."""
    error = pb.ErrorResponse(error_code=error_code)
    if error_message:
        # Lone surrogates (from undecodable file names) cannot be encoded as UTF-8; "replace" avoids a second error.
        text = error_message[:MAX_ERROR_TEXT_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
        error.error_message = text
    body = error.SerializeToString()
    return _RESPONSE.pack(RESPONSE_HEADER_BYTES + len(body), TYPE_ERROR, request_id) + body


def read_response(frame: Buffer) -> Response:
    """Parse an answer; `frame` begins after the length field."""
    view = memoryview(frame)
    if len(view) < 1:
        raise FlussError("the answer frame of the server is empty", ErrorCode.NETWORK_EXCEPTION)
    kind = view[0]
    if kind == TYPE_SERVER_FAILURE:
        return Response(kind, None, view[1:])
    if len(view) < RESPONSE_HEADER_BYTES:
        raise FlussError(
            f"an answer frame of {len(view)} bytes is too short for its request id", ErrorCode.NETWORK_EXCEPTION
        )
    return Response(kind, _LENGTH.unpack_from(view, 1)[0], view[RESPONSE_HEADER_BYTES:])


def read_error(body: Buffer) -> FlussError:
    """The error in the body of an error frame."""
    error = pb.ErrorResponse.FromString(bytes(body))
    text = error.error_message if error.HasField("error_message") else f"server error {error.error_code}"
    return FlussError(text, error.error_code)
