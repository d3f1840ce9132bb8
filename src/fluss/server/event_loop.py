"""Event loops for roles: uvloop where it is installed, plain asyncio elsewhere. Both must work."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

try:
    import uvloop
except ImportError:
    uvloop = None

logger = logging.getLogger(__name__)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A fresh loop whose stray errors go to the log, one line each."""
    loop: asyncio.AbstractEventLoop = asyncio.new_event_loop() if uvloop is None else uvloop.new_event_loop()
    loop.set_exception_handler(_log_stray_error)
    return loop


def _log_stray_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    logger.error("%s", context.get("message", "error in the event loop"), exc_info=error)
