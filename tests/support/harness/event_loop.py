"""Tests that are coroutines."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any


def in_event_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test coroutine in an event loop of its own; fixtures are passed on by name."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        async def main() -> None:
            await test(**fixtures)

        asyncio.run(main())

    return run
