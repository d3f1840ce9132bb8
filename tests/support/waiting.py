"""Waiting for conditions inside coroutines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

POLL_SECONDS = 0.02


async def eventually(condition: Callable[[], Awaitable[bool]], what: str, deadline_seconds: float = 30.0) -> None:
    """Ask until the answer is true; AssertionError names the condition when it never is."""
    deadline = time.monotonic() + deadline_seconds
    while not await condition():
        assert time.monotonic() < deadline, f"not within {deadline_seconds} s: {what}"
        await asyncio.sleep(POLL_SECONDS)
