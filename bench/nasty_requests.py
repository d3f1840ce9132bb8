"""The most expensive well-formed requests of a given size for an API key, made from the shape of its message.

Every repeated field, at any depth, is filled with as many of the smallest entries as fit; every string and every byte
field is made as long as fits; JSON documents are also nested as deep as fits. The rest is a request that the server
would serve: the tables and buckets that it names exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from fluss.protocol.server_payloads import encode_varint

_VARINT, _FIXED_64, _LENGTH_DELIMITED, _FIXED_32 = 0, 1, 2, 5
_FIXED = {
    FieldDescriptor.TYPE_DOUBLE: _FIXED_64,
    FieldDescriptor.TYPE_FIXED64: _FIXED_64,
    FieldDescriptor.TYPE_FLOAT: _FIXED_32,
    FieldDescriptor.TYPE_FIXED32: _FIXED_32,
}
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
_MAX_DEPTH = 4
TAKEN_ENTRIES = 16_000  # a little below `MAX_REQUEST_ENTRIES`
_HEADROOM_BYTES = 1024  # for the frame's header and the other fields


class NastyRequest(NamedTuple):
    """A request body, and the reason why it is expensive."""

    title: str
    body: bytes


def nasty_requests(base: Message, size: int, known: Mapping[str, Any]) -> Iterator[NastyRequest]:
    """Requests of about `size` bytes like `base`; `known` has values for fields by name."""
    room = size - _HEADROOM_BYTES - base.ByteSize()
    yield from (
        NastyRequest(title, base.SerializePartialToString() + more)
        for title, more in _more_of(base.DESCRIPTOR, base, room, known, "")
    )
    unknown = encode_varint(1000 << 3 | _VARINT) + b"\1"
    yield NastyRequest("unknown fields", base.SerializePartialToString() + unknown * (room // len(unknown)))


def _more_of(
    descriptor: Any, base: Any, room: int, known: Mapping[str, Any], where: str
) -> Iterator[tuple[str, bytes]]:
    """Return (title, bytes to append to a message of this type) for every field below it."""
    if where.count(".") > _MAX_DEPTH:  # predicates contain predicates
        return
    for field in descriptor.fields:
        name = f"{where}{field.name}"
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            example = _example(field, base, known)
            inner = example.SerializePartialToString()
            if field.is_repeated:
                entry = _delimited(field, inner)
                yield from _many(name, entry, room)
            for title, more in _more_of(field.message_type, example, room - len(inner), known, f"{name}."):
                yield title, _delimited(field, inner + more)
        elif field.type in _TEXTS:
            yield from _texts(field, name, room)
        elif field.is_repeated:
            one = encode_varint(field.number << 3 | _FIXED.get(field.type, _VARINT)) + b"\0"
            yield from _many(name, one, room)
            yield f"{name} packed", _delimited(field, bytes(room - 16))


def _many(name: str, entry: bytes, room: int) -> Iterator[tuple[str, bytes]]:
    """As many entries as fit, and as many as the server accepts."""
    yield f"{name} many times", entry * (room // len(entry))
    yield f"{name} {TAKEN_ENTRIES} times", entry * min(TAKEN_ENTRIES, room // len(entry))


def _texts(field: FieldDescriptor, name: str, room: int) -> Iterator[tuple[str, bytes]]:
    if field.name == "records":
        yield f"{name} of zeros", _delimited(field, bytes(room - 16))
        return
    if field.is_repeated:
        for title, text in (("empty", b""), ("of one byte", b"\1"), ("of three bytes", b"\2\0\2")):
            entry = _delimited(field, text)
            yield f"{name} many times, {title}", entry * (room // len(entry))
    yield f"{name} long", _delimited(field, b"x" * (room - 16))
    if field.type == FieldDescriptor.TYPE_BYTES:
        yield f"{name} of nested lists", _delimited(field, b"[" * (room - 16))
        yield f"{name} of numbers", _delimited(field, b"[" + b"1," * ((room - 32) // 2) + b"1]")


def _delimited(field: FieldDescriptor, content: bytes) -> bytes:
    return encode_varint(field.number << 3 | _LENGTH_DELIMITED) + encode_varint(len(content)) + content


def _example(field: FieldDescriptor, base: Any, known: Mapping[str, Any]) -> Any:
    """The entry of `base` in this field, or the smallest complete one."""
    if base is not None and field.is_repeated and len(getattr(base, field.name)):
        return getattr(base, field.name)[0]
    if base is not None and not field.is_repeated and base.HasField(field.name):
        return getattr(base, field.name)
    return smallest(field.message_type, known)


def smallest(descriptor: Any, known: Mapping[str, Any]) -> Any:
    """A message with its required fields, with known values where there are some."""
    message: Any = descriptor._concrete_class()
    for field in descriptor.fields:
        if field.name in known and not field.is_repeated:
            if isinstance(known[field.name], Message):
                getattr(message, field.name).CopyFrom(known[field.name])
            else:
                setattr(message, field.name, known[field.name])
        elif field.is_required:
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                getattr(message, field.name).CopyFrom(smallest(field.message_type, known))
            else:
                setattr(message, field.name, b"" if field.type == FieldDescriptor.TYPE_BYTES else field.default_value)
    return message
