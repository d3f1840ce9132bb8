"""Parses the body of a request into a message, with the checks that the protobuf runtime leaves out.

The C back end accepts messages that lack required fields, and for proto2 returns `bytes` for a string field that is not
UTF-8. A handler must never see either, so both are refused here, as a corrupt message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from fluss.errors import ErrorCode, FlussError
from fluss.protocol.request_limits import MAX_REQUEST_ENTRIES, check_entries

MAX_NAMED_MISSING_FIELDS = 5

TextCheck = Callable[[object], bool]


def parse_request(request_type: type[Message], body: bytes | bytearray | memoryview) -> Any:
    """Parse a request from `body`; `FlussError` 3 if required fields are missing or a string is not UTF-8."""
    message: Any
    try:
        message = request_type.FromString(body)  # type: ignore[arg-type]  # the stub forgets other buffers
    except DecodeError:
        name = request_type.DESCRIPTOR.name
        raise FlussError(f"the body is not a valid {name}", ErrorCode.CORRUPT_MESSAGE) from None
    if len(body) > MAX_REQUEST_ENTRIES:  # Before anything that visits the entries.
        check_entries(message)
    if not message.IsInitialized():
        raise missing_fields(message)
    check = text_check_of(message.DESCRIPTOR)
    # A body of ASCII bytes has no invalid string. Most small requests are ASCII, and this check is much cheaper.
    if check is not None and not bytes(body).isascii() and not check(message):
        raise FlussError(f"a string in {request_type.DESCRIPTOR.name} is not UTF-8", ErrorCode.CORRUPT_MESSAGE)
    return message


def missing_fields(message: Message) -> FlussError:
    """The error for a message that lacks required fields."""
    missing = message.FindInitializationErrors()  # type: ignore[attr-defined]
    named = ", ".join(missing[:MAX_NAMED_MISSING_FIELDS])
    more = f" and {len(missing) - MAX_NAMED_MISSING_FIELDS} more" if len(missing) > MAX_NAMED_MISSING_FIELDS else ""
    text = f"{message.DESCRIPTOR.name} lacks required fields: {named}{more}"
    return FlussError(text, ErrorCode.CORRUPT_MESSAGE)


_checks: dict[str, TextCheck | None] = {}


def text_check_of(descriptor: Descriptor) -> TextCheck | None:
    """A function that returns True if all strings of a message are valid; None if the type has no strings."""
    name = descriptor.full_name
    if name not in _checks:
        _checks[name] = _build_check(descriptor) if _has_text(descriptor, set()) else None
    return _checks[name]


def _has_text(descriptor: Descriptor, seen: set[str]) -> bool:
    if descriptor.full_name in seen:
        return False
    seen.add(descriptor.full_name)
    for field in descriptor.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            return True
        if field.message_type is not None and _has_text(field.message_type, seen):
            return True
    return False


def _build_check(descriptor: Descriptor) -> TextCheck:
    texts = [(f.name, f.is_repeated) for f in descriptor.fields if f.type == FieldDescriptor.TYPE_STRING]
    children = [
        (f.name, f.is_repeated, f.message_type)
        for f in descriptor.fields
        if f.message_type is not None and _has_text(f.message_type, set())
    ]

    def check(message: Any) -> bool:
        for name, is_repeated in texts:
            value = getattr(message, name)
            if is_repeated:
                if any(type(item) is not str for item in value):
                    return False
            elif type(value) is not str:
                return False
        for name, is_repeated, child_type in children:
            child_check = text_check_of(child_type)
            if child_check is None:
                continue
            if is_repeated:
                if not all(map(child_check, getattr(message, name))):
                    return False
            elif message.HasField(name) and not child_check(getattr(message, name)):
                return False
        return True

    return check
