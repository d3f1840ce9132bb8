"""Random and mutated request frames, reproducible from a seed.

Most frames are well framed and wrong inside, so that the server has to look at them and to answer. Frames which break
the framing end a connection; they come last in a burst (`last_words`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fluss.protocol.api_keys import APIS, ApiKey
from fluss.protocol.frames import request_frame

MAX_DEPTH = 6
MAX_REPEATED = 3
LIKELY_CHANCE = 0.8
INTEGERS = (-(2**31), -2, -1, 0, 1, 2, 3, 127, 128, 1000, 65536, 2**31 - 1)
LONGS = (*INTEGERS, -(2**63), 2**32, 2**53, 2**63 - 1)
TEXTS = ("", "fluss", "t", "d", "PLAIN", "a$b", "__x", "../../etc", "%s{}", "日本", "\x00", "x" * 250)
JSON_TEXTS = (b"{}", b"[]", b"null", b"{", b'{"version":1}', b'{"type":"INTEGER"}', b"\xff", b"9" * 50)
UNKNOWN_KEYS = (-32768, -1, 0, 3, 999, 1065, 32767)


class FrameMaker:
    """Makes frames for the given API keys.

    `records` are batches to start from where a field holds record bytes. `careful_keys` are APIs whose damaged requests
    may rightly be answered late (a fetch that waits for long): they are mutated only in `last_words`. `likely` are
    numbers by field name that make sense to the server: without them nearly all requests end at the first check.
    `repair` gives a damaged batch a length and a checksum that fit it, so that the server looks into it.
    """

    def __init__(
        self,
        seed: int,
        api_keys: Sequence[int],
        records: Sequence[bytes] = (),
        careful_keys: Sequence[int] = (),
        likely: Mapping[str, Sequence[int]] | None = None,
        repair: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._repair = repair
        self._likely = dict(likely or {})
        self._random = random.Random(seed)
        self._api_keys = tuple(api_keys)
        self._records = tuple(records)
        self._careful_keys = tuple(careful_keys)

    def frame(self, request_id: int) -> bytes:
        """A frame that keeps the framing intact and must get exactly one answer."""
        choice = self._random.random()
        if choice < 0.1:
            return self._random_body(request_id)
        api_key = self._random.choice(self._api_keys)
        body = self._message(api_key)
        if choice < 0.7 and api_key not in self._careful_keys:
            body = self._mutate(body)
        version = 0 if choice > 0.15 else self._random.choice((-1, 1, 2, 3, 32767))
        return request_frame(api_key, version, request_id, body)

    def last_words(self) -> bytes:
        """Bytes after which nothing sensible can follow: bad lengths, noise, a frame that is cut off."""
        source = self._random
        kind = source.randrange(5)
        if kind == 0:
            length = source.choice((-(2**31), -1, 0, 1, 7, 2**31 - 1, 200 * 1024 * 1024))
            return length.to_bytes(4, "big", signed=True) + source.randbytes(source.randrange(40))
        if kind == 1:
            return source.randbytes(source.randrange(1, 200))
        if kind == 2:
            announced = source.choice((100, 70_000, 3_000_000, 90_000_000))
            head = request_frame(source.choice((1012, 1014, 1015)), 0, 1, b"")[4:]
            return announced.to_bytes(4, "big") + head + source.randbytes(source.randrange(min(announced, 2000) - 20))
        if kind == 3 and self._careful_keys:
            api_key = source.choice(self._careful_keys)
            return b"".join(request_frame(api_key, 0, 1, self._mutate(self._message(api_key))) for _ in range(20))
        frame = self.frame(1)
        return frame[: source.randrange(1, len(frame))]

    def _random_body(self, request_id: int) -> bytes:
        source = self._random
        api_key = source.choice(UNKNOWN_KEYS) if source.random() < 0.3 else source.randrange(1000, 1065)
        return request_frame(api_key, 0, request_id, source.randbytes(source.randrange(60)))

    def _message(self, api_key: int) -> bytes:
        request = APIS[ApiKey(api_key)].request()
        self._fill(request, request.DESCRIPTOR, 0)  # type: ignore[arg-type]
        return request.SerializePartialToString()

    def _fill(self, message: Any, descriptor: Descriptor, depth: int) -> None:
        for field in descriptor.fields:
            chance = 0.97 if field.is_required else 0.4
            if depth >= MAX_DEPTH or self._random.random() > chance:
                continue
            if field.is_repeated:
                for _ in range(self._random.randrange(MAX_REPEATED)):
                    if field.message_type is not None:
                        self._fill(getattr(message, field.name).add(), field.message_type, depth + 1)
                    else:
                        getattr(message, field.name).append(self._scalar(field))
            elif field.message_type is not None:
                child = getattr(message, field.name)
                child.SetInParent()
                self._fill(child, field.message_type, depth + 1)
            else:
                setattr(message, field.name, self._scalar(field))

    def _scalar(self, field: FieldDescriptor) -> Any:
        source = self._random
        if field.name == "max_wait_ms":
            return source.choice((-1, 0, 1, 5, 20))  # the answer is awaited
        if field.name in self._likely and source.random() < LIKELY_CHANCE:
            return source.choice(self._likely[field.name])
        if field.type == FieldDescriptor.TYPE_BOOL:
            return source.random() < 0.5
        if field.type == FieldDescriptor.TYPE_STRING:
            return source.choice(TEXTS)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self._bytes(field.name)
        if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
            return source.choice((0.0, -1.5, float("nan"), float("inf")))
        return source.choice(INTEGERS if field.type == FieldDescriptor.TYPE_INT32 else LONGS)

    def _bytes(self, name: str) -> bytes:
        source = self._random
        if name == "records" and self._records:
            batch = source.choice(self._records)
            if source.random() < 0.5:
                return batch
            damaged = self._mutate(batch)
            return self._repair(damaged) if self._repair is not None and source.random() < 0.8 else damaged
        if name.endswith("_json"):
            return source.choice(
                (b"{}", b"[]", b"null", b"{", b'{"version":1}', b'{"type":"INTEGER"}', b"\xff", b"9" * 50)
            )
        return source.randbytes(source.randrange(40))

    def _mutate(self, data: bytes) -> bytes:
        source = self._random
        mutated = bytearray(data)
        for _ in range(source.randrange(1, 4)):
            position = source.randrange(len(mutated) + 1)
            kind = source.randrange(5)
            if kind == 0 and position < len(mutated):
                mutated[position] ^= 1 << source.randrange(8)
            elif kind == 1 and position < len(mutated):
                mutated[position] = source.choice((0, 1, 0x7F, 0x80, 0xFF))
            elif kind == 2:
                del mutated[position : position + source.randrange(8)]
            elif kind == 3:
                mutated[position:position] = source.randbytes(source.randrange(8))
            else:
                mutated[position:position] = mutated[: source.randrange(40)]
        return bytes(mutated)
