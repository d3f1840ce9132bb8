"""Slows down addresses with failed logins.

Each failure raises the level of its address by one; time lowers it. Up to `FREE_FAILURES` nothing happens, because
people make mistakes. Above that, all attempts of the address, right or wrong and over all of its connections, are
judged one after another with a pause before each, which doubles with every further failure. So an attacker gets a fixed
number of attempts per minute however many connections it opens. An attempt that would have to wait too long is refused
without being judged, with a code that makes clients try again. Called in the event loop's thread with its clock.
"""

from __future__ import annotations

FREE_FAILURES = 20
FORGIVEN_FAILURES_PER_SECOND = 0.5
FIRST_PAUSE_SECONDS = 0.1
LAST_PAUSE_SECONDS = 5.0
# Waiting longer is useless: clients time out, and the server closes connections that do not log in.
MAX_TURN_WAIT_SECONDS = 15.0
MAX_REMEMBERED_ADDRESSES = 10_000


class _Address:
    __slots__ = ("level", "next_turn", "seen_at")

    def __init__(self, now: float) -> None:
        self.level = 0.0
        self.seen_at = now
        self.next_turn = now


class LoginAttempts:
    """The levels of all addresses with failures; the least recent ones are forgotten first."""

    def __init__(self) -> None:
        self._addresses: dict[str, _Address] = {}

    def wait_seconds(self, address: str, now: float) -> float | None:
        """Reserve a turn for the next attempt; return the seconds until then, or None if that is too long."""
        known = self._addresses.get(address)
        if known is None:
            return 0.0
        excess = self._level(known, now) - FREE_FAILURES
        if excess < 0:
            return 0.0
        pause: float = min(FIRST_PAUSE_SECONDS * 2.0 ** min(excess, 16.0), LAST_PAUSE_SECONDS)
        turn = max(now, known.next_turn) + pause
        if turn - now > MAX_TURN_WAIT_SECONDS:
            return None
        known.next_turn = turn
        return turn - now

    def note_failure(self, address: str, now: float) -> None:
        """Count an attempt that was judged and refused."""
        known = self._addresses.pop(address, None) or _Address(now)
        known.level = self._level(known, now) + 1
        known.seen_at = now
        self._addresses[address] = known
        if len(self._addresses) > MAX_REMEMBERED_ADDRESSES:
            del self._addresses[next(iter(self._addresses))]

    def _level(self, known: _Address, now: float) -> float:
        return max(0.0, known.level - (now - known.seen_at) * FORGIVEN_FAILURES_PER_SECOND)
