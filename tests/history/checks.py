"""What a history must be like, for each kind of table. A check gives sentences about what is wrong.

Every value is written once per key, so a read tells which write it saw; that makes linearizability easy to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple

from tests.history.records import NEVER, History, Read, Write

Check = Callable[[list[Write], list[Read]], Iterable[str]]


def problems(history: History, check: Check) -> list[str]:
    """What a check finds, key by key."""
    return [f"key {key!r}: {text}" for key, found in history.by_key().items() for text in check(*found)]


def _sources(writes: list[Write], reads: list[Read]) -> tuple[dict[Any, Write], list[str]]:
    """The write of each value, and reads of values that no write had begun."""
    by_value = {write.value: write for write in writes}
    wrong = []
    for read in reads:
        if read.value is None:
            continue
        write = by_value.get(read.value)
        if write is None:
            wrong.append(f"{read} of a value that was not written")
        elif write.start > read.end:
            wrong.append(f"{read} ended before {write} began")
    return by_value, wrong


class _Zone(NamedTuple):
    """The calls about one value: the first of their ends, the last of their starts."""

    first_end: int
    last_start: int
    value: Any

    @property
    def low(self) -> int:
        return min(self.first_end, self.last_start)

    @property
    def high(self) -> int:
        return max(self.first_end, self.last_start)


def register(writes: list[Write], reads: list[Read]) -> list[str]:
    """Linearizability of one register that is None at first (Gibbons and Korach, "Testing Shared Memories", 1997).

    Between the first end and the last start of the calls about a value, the register must have had that value all the
    time: such zones do not overlap. Of a value whose calls all overlap, its moment lies in their common time; that must
    not be inside of another value's zone as a whole.
    """
    by_value, wrong = _sources(writes, reads)
    if wrong:
        return wrong
    calls: dict[Any, list[Write | Read]] = {None: [Write(None, None, -2, -1)]}
    seen = {read.value for read in reads}
    for value, write in by_value.items():
        if write.end != NEVER or value in seen:  # else nothing tells whether it happened
            calls[value] = [write]
    for read in reads:
        calls[read.value].append(read)
    zones = [
        _Zone(min(each.end for each in about), max(each.start for each in about), value)
        for value, about in calls.items()
    ]
    lasting = sorted((zone for zone in zones if zone.first_end < zone.last_start), key=lambda zone: zone.low)
    for one, other in pairwise(lasting):
        if other.low < one.high:
            wrong.append(f"two values were there at the same time, or one came back: {one}, {other}")
    for zone in zones:
        if zone.first_end > zone.last_start:
            for around in lasting:
                if around.low < zone.low and zone.high < around.high:
                    wrong.append(f"one value was written while another was there: {zone}, {around}")
    return wrong


def append_list(writes: list[Write], reads: list[Read]) -> list[str]:
    """Reads give the whole list: each is the beginning of every later one, without repetitions, in real-time order."""
    wrong = []
    by_value = {write.value: write for write in writes}
    longest: tuple[Any, ...] = max((tuple(read.value) for read in reads), key=len, default=())
    if len(set(longest)) < len(longest):
        wrong.append("elements are there twice")
    for read in reads:
        found = tuple(read.value)
        if found != longest[: len(found)]:
            wrong.append(f"a list of {len(found)} elements is not the beginning of one of {len(longest)}")
        inside = set(found)
        for write in writes:
            if write.end < read.start and write.value not in inside:
                wrong.append(f"{write} was acknowledged before {read.start}, when a read began that lacks it")
        for value in found:
            if value not in by_value:
                wrong.append(f"{value!r} was not appended by any writer")
            elif by_value[value].start > read.end:
                wrong.append(f"{value!r} was read before it was appended")
    for read in reads:
        for later in reads:
            if read.end < later.start and len(later.value) < len(read.value):
                wrong.append(f"a read that began at {later.start} gave less than one that ended at {read.end}")
    newest_start = 0
    for value in longest:
        if value not in by_value:
            continue
        appended = by_value[value]
        if appended.end < newest_start:
            wrong.append(f"{appended} ended before one began that lies in front of it")
        newest_start = max(newest_start, appended.start)
    return wrong


def first_row(writes: list[Write], reads: list[Read]) -> list[str]:
    """The first put of a key stays."""
    by_value, wrong = _sources(writes, reads)
    if wrong:
        return wrong
    first_done = min((write.end for write in writes), default=NEVER)
    found = {read.value for read in reads if read.value is not None}
    if len(found) > 1:
        wrong.append(f"the first row was {sorted(found)}")
    for value in found:
        if by_value[value].start > first_done:
            wrong.append(f"{by_value[value]} is not the first: another one ended at {first_done}")
    first_seen = min((read.end for read in reads if read.value is not None), default=NEVER)
    for read in reads:
        if read.value is None and read.start > min(first_done, first_seen):
            wrong.append(f"{read} found nothing, after there was a row")
    return wrong


def versioned(writes: list[Write], reads: list[Read]) -> list[str]:
    """Values are versions, and the highest stays."""
    _, wrong = _sources(writes, reads)
    for read in reads:
        floor = max((write.value for write in writes if write.end < read.start), default=None)
        seen = max((each.value for each in reads if each.value is not None and each.end < read.start), default=None)
        for least, what in ((floor, "written"), (seen, "read")):
            if least is not None and (read.value is None or read.value < least):
                wrong.append(f"{read}, although {least!r} was {what} before")
    return wrong


def log_places(reads: list[tuple[int, Any]]) -> list[str]:
    """Rows with their offsets, as many readers saw them: one offset is one row for everybody, and vice versa."""
    wrong = []
    rows: dict[int, Any] = {}
    offsets: dict[Any, int] = {}
    for offset, value in reads:
        if rows.setdefault(offset, value) != value:
            wrong.append(f"offset {offset} was {rows[offset]!r} and {value!r}")
        if offsets.setdefault(value, offset) != offset:
            wrong.append(f"{value!r} was at offsets {offsets[value]} and {offset}")
    return wrong


def tail_is_whole(seen: list[tuple[int, Any]], whole: list[tuple[int, Any]]) -> list[str]:
    """What one reader polled from the start, over all restarts, is the beginning of the log: nothing skipped."""
    if seen != whole[: len(seen)]:
        at = next((place for place, pair in enumerate(seen) if place >= len(whole) or pair != whole[place]), len(seen))
        return [f"a reader got {seen[at : at + 2]} at place {at}, where the log has {whole[at : at + 2]}"]
    return []
