"""The claim of an attempt: renewed without a gap for others, and noticed when it is lost.

The tests control the clock: a thread that renews is never late because the machine is busy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fluss.errors import FlussError
from fluss.spark.write import append_claim as module
from fluss.spark.write.append_claim import CLAIM_MS, RENEWALS, Claim
from fluss.spark.write.commit_notes import Markers
from tools.waiting import DEADLINE_SECONDS, patience, wait_until

CLAIM_SECONDS = CLAIM_MS / 1000
RENEWAL_SECONDS = CLAIM_SECONDS / RENEWALS


class Clock:
    """Stands still until the test lets time pass."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.now = 1000.0
        self.sleepers: dict[ClockEvent, float] = {}

    def monotonic(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        with self.changed:
            self.now += seconds
            self.changed.notify_all()

    def is_waited_for(self) -> bool:
        """True if a thread waits that only time can wake."""
        with self.changed:
            return any(end > self.now for end in self.sleepers.values())

    def renewals(self, count: int) -> None:
        """Let time pass, step by step, until a thread of a claim has made this many renewals."""
        for _ in range(count):
            wait_until(self.is_waited_for, "the thread of the claim waits for its next turn")
            self.advance(RENEWAL_SECONDS)
        wait_until(self.is_waited_for, "the thread of the claim waits for its next turn")


class ClockEvent(threading.Event):
    """An event whose time-outs are those of the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def set(self) -> None:
        super().set()
        with self._clock.changed:
            self._clock.changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        clock = self._clock
        with clock.changed:
            end = clock.sleepers[self] = clock.now + timeout
            clock.changed.wait_for(lambda: self.is_set() or clock.now >= end, patience(DEADLINE_SECONDS))
            del clock.sleepers[self]
        return self.is_set()


class Notes:
    """Notes in memory that expire on time. `after_remove` is called after each removal, but not recursively."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._notes: dict[str, tuple[int, float]] = {}
        self.removed: list[str] = []
        self.after_remove: Callable[[], None] | None = None

    def claim_ids(self, partition_id: int) -> tuple[str, str]:
        return f"a{partition_id}", f"b{partition_id}"

    def leave(self, note_id: str, ttl_ms: int, number: int = 0) -> bool:
        with self._lock:
            kept, end = self._notes.get(note_id, (0, 0.0))
            if end > self.clock.now:
                return kept == number
            self._notes[note_id] = number, self.clock.now + ttl_ms / 1000
            return True

    def remove(self, note_id: str) -> None:
        with self._lock:
            self._notes.pop(note_id, None)
            self.removed.append(note_id)
        after, self.after_remove = self.after_remove, None
        if after is not None:
            after()
            self.after_remove = after

    def there(self) -> set[str]:
        with self._lock:
            return {note for note, (_, end) in self._notes.items() if end > self.clock.now}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


@pytest.fixture
def notes(clock: Clock) -> Notes:
    return Notes(clock)


def claim(notes: Notes) -> Claim:
    made = Claim(cast(Markers, notes), 0)
    made._is_over = ClockEvent(notes.clock)
    return made


def test_no_other_attempt_gets_the_claim_while_it_is_renewed(notes: Notes, clock: Clock) -> None:
    """Another attempt tries in every gap, and whenever it can."""
    own = claim(notes)
    got_in: list[bool] = []

    def rival_tries() -> None:
        got_in.append(claim(notes).take())

    def in_the_gap() -> None:
        if threading.current_thread() is own._renewing:
            rival_tries()

    assert own.take()
    notes.after_remove = in_the_gap
    with own:
        for _ in range(5 * RENEWALS):
            clock.renewals(1)
            rival_tries()
        assert {"a0", "b0"} <= set(notes.removed)
        assert list[object](own.checked(cast(Any, [1, 2]))) == [1, 2]
    assert len(got_in) > 5 * RENEWALS
    assert not any(got_in)
    assert notes.there() == set()
    assert claim(notes).take()


def test_a_claim_that_is_not_renewed_expires(notes: Notes, clock: Clock) -> None:
    assert claim(notes).take()
    rival = claim(notes)
    clock.advance(0.99 * CLAIM_SECONDS)
    assert not rival.take()
    clock.advance(0.02 * CLAIM_SECONDS)
    assert rival.take()


def test_a_lost_claim_stops_the_append(notes: Notes, clock: Clock) -> None:
    """The coordinator does not answer until the notes have expired and another attempt has taken them."""
    own, rival = claim(notes), claim(notes)
    assert own.take()
    is_taken = threading.Event()

    def as_if_away() -> None:
        if threading.current_thread() is own._renewing:
            clock.advance(2 * CLAIM_SECONDS)
            assert rival.take()
            is_taken.set()

    notes.after_remove = as_if_away
    with own:
        wait_until(clock.is_waited_for, "the claim waits for its first renewal")
        clock.advance(RENEWAL_SECONDS)
        assert is_taken.wait(patience(DEADLINE_SECONDS))
        with rival:
            wait_until(lambda: own._is_lost, "the loss is noticed")
            with pytest.raises(FlussError, match="another attempt of this task has taken over"):
                list(own.checked(cast(Any, [1])))
            _is_renewed(rival, notes)
    assert notes.there() == set()


def test_a_suspended_process_loses_the_claim_to_another_attempt(notes: Notes, clock: Clock) -> None:
    own, rival = claim(notes), claim(notes)
    assert own.take()
    clock.advance(1.01 * CLAIM_SECONDS)
    assert rival.take()
    with rival:
        assert not own._renewed(0)
        _is_renewed(rival, notes)


def _is_renewed(rival: Claim, notes: Notes) -> None:
    before = len(notes.removed)
    notes.clock.renewals(3)
    assert len(notes.removed) >= before + 3
    assert list[object](rival.checked(cast(Any, [1]))) == [1]
