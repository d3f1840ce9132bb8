"""Positions in a table's log as users write them: a keyword, a time, or offsets as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fluss.errors import FlussError

PositionKind = Literal["full", "earliest", "latest", "timestamp", "offsets"]
TIMESTAMP_PREFIX = "timestamp:"
_FORMS = "earliest, latest, full, timestamp:<milliseconds or ISO time>, or offsets as JSON"


@dataclass(frozen=True)
class Position:
    """A position at which reading starts or ends.

    `full` is the current state followed by the changes. Explicit offsets are (partition name, bucket, offset); the
    partition name is None for tables without partitions.
    """

    kind: PositionKind
    timestamp_ms: int | None = None
    offsets: tuple[tuple[str | None, int, int], ...] = ()

    def offset_of(self, partition_name: str | None, bucket: int) -> int | None:
        """The explicit offset of a bucket, or None if the user gave none."""
        for name, number, offset in self.offsets:
            if (name, number) == (partition_name, bucket):
                return offset
        return None


def parse_position(name: str, value: str, time_zone: str) -> Position:
    """Parse the value of option `name`; times without a zone are in `time_zone`.

    >>> parse_position("start", '{"0": 17, "1": 4}', "UTC").offset_of(None, 1)
    4
    >>> parse_position("start", '{"2026-08": {"0": 17}}', "UTC").offset_of("2026-08", 0)
    17
    """
    text = value.strip()
    word = text.lower()
    if word in ("full", "earliest", "latest"):
        kind: Any = word
        return Position(kind)
    if word.startswith(TIMESTAMP_PREFIX):
        return Position("timestamp", timestamp_ms=parse_timestamp(name, text[len(TIMESTAMP_PREFIX) :], time_zone))
    if text.startswith("{"):
        return Position("offsets", offsets=_offsets(name, text))
    raise FlussError(f"option {name} must be {_FORMS}, got {value!r}")


def parse_timestamp(name: str, value: str, time_zone: str) -> int:
    """Parse a number, a date, or a date and time to milliseconds since 1970.

    >>> parse_timestamp("start", "2026-08-01 12:00:00", "UTC")
    1785585600000
    """
    text = value.strip()
    if text.lstrip("-").isdecimal():
        return int(text)
    try:
        # fromisoformat does not accept a lower-case z
        moment = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
    except ValueError:
        raise FlussError(
            f"option {name} must be milliseconds since 1970 or a time such as 2026-08-01T12:00:00, got {value!r}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=_zone(time_zone))
    return int(moment.timestamp() * 1000)


def _zone(time_zone: str) -> ZoneInfo:
    try:
        return ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError):
        raise FlussError(f"option timeZone must be a time zone such as Europe/Berlin, got {time_zone!r}") from None


def _offsets(name: str, text: str) -> tuple[tuple[str | None, int, int], ...]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise FlussError(f"option {name} is not valid JSON: {error}, got {text!r}") from None
    entries: list[tuple[str | None, int, int]] = []
    for key, entry in document.items():
        if isinstance(entry, dict):
            entries += [(key, _number(name, bucket), _number(name, offset)) for bucket, offset in entry.items()]
        else:
            entries.append((None, _number(name, key), _number(name, entry)))
    return tuple(sorted(entries, key=lambda item: (item[0] or "", item[1])))


def _number(name: str, value: object) -> int:
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise FlussError(
            f'option {name}: offsets must be {{"bucket": offset}}, or {{"partition": {{"bucket": offset}}}} for a '
            f"partitioned table, with numbers of at least 0, got {value!r}"
        )
    return value
