"""Event loops for roles: uvloop if it is installed, plain asyncio otherwise. Both must work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

_make_loop: Callable[[], asyncio.AbstractEventLoop]
try:
    import uvloop

    _make_loop = uvloop.new_event_loop
except ImportError:
    _make_loop = asyncio.new_event_loop

logger = logging.getLogger(__name__)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop that logs unhandled errors, one line each."""
    loop = _make_loop()
    loop.set_exception_handler(_log_stray_error)
    return loop


def _log_stray_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    logger.error("%s", context.get("message", "error in the event loop"), exc_info=error)
