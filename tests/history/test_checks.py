"""The control of the checks: right histories pass, and each kind of violation that is put in is found."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.history import checks
from tests.history.records import NEVER, Read, Write

Calls = tuple[list[Write], list[Read]]


def _random_register(rng: random.Random) -> Calls:
    """A real register: calls overlap, and each takes effect at a moment of its own."""
    writes: list[Write] = []
    reads: list[Read] = []
    effects = []
    for number in range(40):
        start = rng.randrange(0, 2000)
        moment = start + rng.randrange(1, 60)
        effects.append((moment, number, start, moment + rng.randrange(1, 60)))
    value = None
    for _, number, start, end in sorted(effects):
        at, until = start * 100 + number, end * 100 + number
        if number % 2:
            reads.append(Read("k", value, at, until))
        else:
            value = number
            writes.append(Write("k", value, at, NEVER if rng.random() < 0.2 else until))
    return writes, reads


def test_real_registers_pass() -> None:
    for seed in range(300):
        assert checks.register(*_random_register(random.Random(seed))) == []


def _stale(calls: Calls) -> Calls:
    """A last read gives what was there at the beginning."""
    return calls[0], [*calls[1], Read("k", None, 10**7, 10**7 + 1)]


def _lost(calls: Calls) -> Calls:
    """An acknowledged write is followed by a read of the value before it."""
    last = calls[1][-1].value
    return [*calls[0], Write("k", "new", 10**7, 10**7 + 1)], [*calls[1], Read("k", last, 10**7 + 2, 10**7 + 3)]


def _invented(calls: Calls) -> Calls:
    return calls[0], [*calls[1], Read("k", "unwritten", 10**7, 10**7 + 1)]


def _too_early(calls: Calls) -> Calls:
    return [*calls[0], Write("k", "late", 10**7, NEVER)], [*calls[1], Read("k", "late", 5, 6)]


def _flickering(calls: Calls) -> Calls:
    """A write that was given up appears, goes, and comes back."""
    moments = range(10**7, 10**7 + 20, 4)
    values = ["odd", "sure", "odd"]
    reads = [Read("k", value, at + 1, at + 2) for value, at in zip(values, moments, strict=False)]
    return [*calls[0], Write("k", "odd", 10**7 - 9, NEVER), Write("k", "sure", 10**7 - 8, 10**7 - 7)], calls[1] + reads


@pytest.mark.parametrize("mutate", [_stale, _lost, _invented, _too_early, _flickering])
def test_broken_registers_are_found(mutate: Callable[[Calls], Calls]) -> None:
    for seed in range(50):
        assert checks.register(*mutate(_random_register(random.Random(seed)))), seed


def test_a_write_in_the_time_of_another_value_is_found() -> None:
    writes = [Write("k", 1, 1, 2), Write("k", 2, 10, 11)]
    assert checks.register(writes, [Read("k", 1, 3, 4), Read("k", 1, 20, 21)])
    assert not checks.register(writes, [Read("k", 1, 3, 4), Read("k", 2, 20, 21)])


APPENDS = [Write("k", 1, 1, 2), Write("k", 2, 3, 9), Write("k", 3, 4, NEVER), Write("k", 4, 20, 21)]


def test_lists() -> None:
    good = [Read("k", (1,), 5, 6), Read("k", (1, 3, 2), 12, 13), Read("k", (1, 3, 2, 4), 22, 23)]
    assert checks.append_list(APPENDS, good) == []
    for name, value in (
        ("lost", (1, 3, 4)),
        ("twice", (1, 3, 2, 4, 4)),
        ("other order", (1, 2, 3, 4)),
        ("invented", (1, 3, 2, 4, 99)),
        ("against time", (4, 1, 3, 2)),
        ("shorter", (1, 3)),
    ):
        assert checks.append_list(APPENDS, [*good, Read("k", value, 30, 31)]), name
    assert checks.append_list(APPENDS, [Read("k", (1, 2, 4), 5, 6)]), "before it was appended"
    assert checks.append_list(APPENDS, [Read("k", (4, 1, 2), 30, 31)]), "against real time"


def test_first_rows() -> None:
    writes = [Write("k", "a", 1, 5), Write("k", "b", 2, NEVER), Write("k", "c", 8, 9)]
    for winner in ("a", "b"):
        assert checks.first_row(writes, [Read("k", None, 0, 3), Read("k", winner, 6, 7)]) == []
    assert checks.first_row(writes, [Read("k", "c", 10, 11)]), "not the first"
    assert checks.first_row(writes, [Read("k", "a", 6, 7), Read("k", "b", 8, 10)]), "two first ones"
    assert checks.first_row(writes, [Read("k", None, 6, 7)]), "lost"
    assert checks.first_row(writes, [Read("k", "b", 3, 4), Read("k", None, 5, 6)]), "seen and gone"


def test_versions() -> None:
    writes = [Write("k", 5, 1, 2), Write("k", 3, 3, 4), Write("k", 7, 5, NEVER)]
    assert checks.versioned(writes, [Read("k", 5, 6, 7), Read("k", 7, 8, 9)]) == []
    assert checks.versioned(writes, [Read("k", 3, 6, 7)]), "a lower one"
    assert checks.versioned(writes, [Read("k", 7, 6, 7), Read("k", 5, 8, 9)]), "back"
    assert checks.versioned(writes, [Read("k", None, 6, 7)]), "lost"


def test_places_and_tails() -> None:
    whole = [(0, "a"), (1, "b"), (5, "c")]
    assert checks.log_places([*whole, *whole]) == []
    assert checks.log_places([*whole, (5, "d")]), "an offset for two rows"
    assert checks.log_places([*whole, (7, "a")]), "a row at two offsets"
    assert checks.tail_is_whole(whole[:2], whole) == []
    assert checks.tail_is_whole([(0, "a"), (5, "c")], whole), "skipped"
    assert checks.tail_is_whole([*whole, (6, "d")], whole), "gone"
