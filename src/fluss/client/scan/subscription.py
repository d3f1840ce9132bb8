"""One subscribed bucket of a scanner.

A subscription is created by a user's thread and never reused: subscribing again creates a new one and ends the old one
(`active` False), so that answers to older requests are recognised and dropped. Each field has one owner:

    shared, under the lock of `ReadyQueue`:   active, position, stop_offset
    I/O thread only:                          everything else

Invariants: a bucket is in at most one fetch at a time; `fetch_offset` is after everything fetched, `position` after
everything delivered to the user; `raw` holds fetched bytes in offset order whose decoding has not started.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from fluss.client.decode.decoder import Decoded
from fluss.client.scan.fetch_rules import next_pause_seconds
from fluss.client.scan.remote_segment import RemoteSegment
from fluss.values.basic import EARLIEST_OFFSET, TableBucket


class RawChunk(NamedTuple):
    """Record bytes of one answer or of part of a remote segment, whole batches only; one starts at `middle`.

    Without bytes it has a `step`, for damaged bytes between two chunks.
    """

    view: memoryview
    position: int
    projected: bool
    filtered_end: int | None
    schema_ids: frozenset[int]
    middle: int
    segment: RemoteSegment | None = None
    step: Decoded | None = None


class Subscription:
    """One subscribed bucket; see the module docstring."""

    __slots__ = (
        "active", "asked_offset", "backoff_seconds", "bucket", "decodings", "fetch_offset", "full_rows", "in_flight",
        "not_before", "position", "raw", "raw_bytes", "remote_failures", "remote_task", "room", "starved",
        "stop_offset", "turn_backs", "waits_for_user",
    )  # fmt: skip

    def __init__(self, bucket: TableBucket, start_offset: int) -> None:
        self.bucket = bucket
        self.active = True
        self.position = start_offset
        self.stop_offset: int | None = None
        self.fetch_offset = start_offset
        self.asked_offset = start_offset
        self.in_flight = False
        self.raw: deque[RawChunk] = deque()
        self.raw_bytes = 0
        # Chunks that are being decoded, in offset order; and how often an error moved the fetch offset back.
        self.decodings: deque[asyncio.Task[None]] = deque()
        self.turn_backs = 0
        self.room: asyncio.Event | None = None
        self.remote_task: asyncio.Task[None] | None = None
        self.remote_failures = 0
        self.full_rows = False
        self.starved = False
        self.not_before = 0.0
        self.backoff_seconds = 0.0
        self.waits_for_user = False

    @property
    def wants_fetch(self) -> bool:
        """True if it may be fetched, apart from a pause after an error. False while it has undecoded data."""
        return (
            self.active
            and not self.in_flight
            and not self.raw
            and self.remote_task is None
            and not self.waits_for_user
            and (self.stop_offset is None or self.fetch_offset < self.stop_offset)
        )

    @property
    def is_finished(self) -> bool:
        """True if a bounded read has nothing more to read here."""
        return not self.active or self.stop_offset is None or self.position >= self.stop_offset

    def pause(self) -> None:
        """Stop fetching for a while, longer after every failure in a row. I/O thread."""
        self.backoff_seconds = next_pause_seconds(self.backoff_seconds)
        self.not_before = asyncio.get_running_loop().time() + self.backoff_seconds

    def __repr__(self) -> str:
        place = "earliest" if self.position == EARLIEST_OFFSET else str(self.position)
        return f"Subscription({self.bucket}, position={place}, active={self.active})"
