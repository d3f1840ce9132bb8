"""Finds the fields of an encoded protobuf message without decoding them.

Each field costs Python time, so their number is limited: a frame full of empty entries must not block an
event loop.
"""

from __future__ import annotations

from fluss.errors import ErrorCode, FlussError

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
MAX_VARINT_BYTES = 10


class TooManyFieldsError(FlussError):
    """Raised by `WireFields` for a message with more fields than it is allowed to visit."""


class WireFields:
    """Finds fields in `body` and counts them. `what` names the message in errors, which all have code 3."""

    __slots__ = ("_fields", "_max_fields", "_what", "body")

    def __init__(self, body: memoryview, what: str, max_fields: int) -> None:
        self.body = body
        self._what = what
        self._max_fields = max_fields
        self._fields = 0

    def varint(self, position: int, end: int) -> tuple[int, int]:
        """Decode the varint at `position`; return its value and the position after it."""
        body = self.body
        result = shift = 0
        while position < end:
            byte = body[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result, position
            shift += 7
            if shift >= 7 * MAX_VARINT_BYTES:
                break
        raise self._corrupt("a number is cut off or too long")

    def field(self, position: int, end: int) -> tuple[int, int, int]:
        """The tag of the field at `position` (before `end`), the start of its payload, and the end of the field."""
        self._fields += 1
        if self._fields > self._max_fields:
            text = f"the body is not {self._what}: it has more than {self._max_fields} fields"
            raise TooManyFieldsError(text, ErrorCode.CORRUPT_MESSAGE)
        body = self.body
        tag, start = body[position], position + 1
        if tag > 0x7F:
            tag, start = self.varint(position, end)
        kind = tag & 7
        if kind == LENGTH_DELIMITED:
            length, start = self.varint(start, end)
            stop = start + length
        elif kind == VARINT:
            stop, last = start, min(end, start + MAX_VARINT_BYTES)
            while stop < last and body[stop] > 0x7F:
                stop += 1
            stop += 1  # after the byte that ends the number
            if stop > last:
                raise self._corrupt("a number is cut off or too long")
        elif kind == FIXED64:
            stop = start + 8
        elif kind == FIXED32:
            stop = start + 4
        else:
            raise self._corrupt(f"unknown wire type {kind}")
        if stop > end:
            raise self._corrupt("a field is longer than its message")
        return tag, start, stop

    def _corrupt(self, detail: str) -> FlussError:
        return FlussError(f"the body is not {self._what}: {detail}", ErrorCode.CORRUPT_MESSAGE)
