"""The claim of an attempt: renewed without a gap for others, and noticed when it is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from fluss.errors import FlussError
from fluss.spark.write import claim as module
from fluss.spark.write.claim import Claim
from fluss.spark.write.markers import Markers

DEADLINE_SECONDS = 20.0
CLAIM_MS = 800
RENEWED_MS = 2400
"""Time enough for a thread that renews, also on a busy machine."""


class Notes:
    """Notes in memory that end when they should. `after_remove` is called after each removal, but not by its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes: dict[str, tuple[int, float]] = {}
        self.removed: list[str] = []
        self.after_remove: Callable[[], None] | None = None

    def claim_ids(self, partition_id: int) -> tuple[str, str]:
        return f"a{partition_id}", f"b{partition_id}"

    def leave(self, note_id: str, ttl_ms: int, number: int = 0) -> bool:
        with self._lock:
            kept, end = self._notes.get(note_id, (0, 0.0))
            if end > time.monotonic():
                return kept == number
            self._notes[note_id] = number, time.monotonic() + ttl_ms / 1000
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
            return {note for note, (_, end) in self._notes.items() if end > time.monotonic()}


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    monkeypatch.setattr(module, "CLAIM_MS", CLAIM_MS)
    return Notes()


def claim(notes: Notes) -> Claim:
    return Claim(cast(Markers, notes), 0)


def test_nobody_gets_in_while_it_is_renewed(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another attempt tries in every gap, and whenever it can."""
    monkeypatch.setattr(module, "CLAIM_MS", RENEWED_MS)
    own = claim(notes)
    got_in: list[bool] = []

    def rival_tries() -> bool:
        got_in.append(claim(notes).take())
        return time.monotonic() > ended

    def in_the_gap() -> None:
        if threading.current_thread() is own._renewing:
            rival_tries()

    assert own.take()
    notes.after_remove = in_the_gap
    ended = time.monotonic() + 2.5 * RENEWED_MS / 1000
    with own:
        wait_for(rival_tries)
        assert {"a0", "b0"} <= set(notes.removed)
        assert list(own.checked(cast(Any, [1, 2]))) == [1, 2]
    assert not any(got_in)
    assert notes.there() == set()
    assert claim(notes).take()


def test_a_claim_that_is_not_renewed_ends(notes: Notes) -> None:
    assert claim(notes).take()
    rival = claim(notes)
    assert not rival.take()
    wait_for(rival.take)


def test_a_lost_claim_stops_the_append(notes: Notes) -> None:
    """The coordinator does not answer until the notes have ended and another attempt has taken them."""
    own, rival = claim(notes), claim(notes)
    assert own.take()
    is_taken = threading.Event()

    def as_if_away() -> None:
        if threading.current_thread() is own._renewing:
            wait_for(rival.take)
            is_taken.set()

    notes.after_remove = as_if_away
    with own:
        assert is_taken.wait(DEADLINE_SECONDS)
        with rival:
            wait_for(lambda: own._is_lost)
            with pytest.raises(FlussError, match="another attempt of this task appends its rows now"):
                list(own.checked(cast(Any, [1])))
            before = len(notes.removed)
            wait_for(lambda: len(notes.removed) > before + 2)
            assert list(rival.checked(cast(Any, [1]))) == [1]
    assert notes.there() == set()


def test_a_process_that_stood_still_leaves_the_claim_to_the_other_one(notes: Notes) -> None:
    own, rival = claim(notes), claim(notes)
    assert own.take()
    wait_for(rival.take)
    with rival:
        assert not own._renewed(0)
        before = len(notes.removed)
        wait_for(lambda: len(notes.removed) > before + 2)
        assert list(rival.checked(cast(Any, [1]))) == [1]
