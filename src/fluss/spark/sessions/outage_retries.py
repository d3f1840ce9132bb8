"""Waiting for servers that do not answer: a restart must not end a query that runs for months.

An address at which no server has answered this process yet may also be wrong, so the wait is shorter
(`start_patience_seconds`), and the error mentions the address.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from fluss.errors import ErrorCode, FlussError
from fluss.spark.options.parsing import FlussOptions
from fluss.spark.sessions.connection_cache import has_answered

FIRST_PAUSE_SECONDS = 0.05
LAST_PAUSE_SECONDS = 1.0
STREAM_PATIENCE_FACTOR = 5
"""Streams wait this many times as long as batch reads, which wait for `scan.poll.timeout`."""

T = TypeVar("T")
logger = logging.getLogger(__name__)

# No server answered. Codes that are retriable by their nature count as outages too.
_OUTAGE_CODES = frozenset({ErrorCode.REQUEST_TIME_OUT, ErrorCode.NETWORK_EXCEPTION})


def is_outage(error: FlussError) -> bool:
    """True if the same request may succeed later."""
    return error.is_retriable or error.error_code in _OUTAGE_CODES


def patience_seconds(options: FlussOptions) -> float:
    """How long a running query waits for servers that do not answer."""
    return STREAM_PATIENCE_FACTOR * options.read.poll_timeout_ms / 1000


def start_patience_seconds(options: FlussOptions) -> float:
    """How long a starting query waits: as a running one if servers have answered before, else `scan.poll.timeout`."""
    if has_answered(options.client):
        return patience_seconds(options)
    return options.read.poll_timeout_ms / 1000


def patiently(call: Callable[[], T], seconds: float) -> T:
    """Return the result of a call, repeated for at most `seconds` while servers do not answer."""
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return call()
        except FlussError as error:
            if not is_outage(error):
                raise
            if time.monotonic() + pause > deadline:
                raise FlussError(
                    f"the servers have not answered for {seconds:.0f} s: check that the address is right and that they "
                    f"run. How long to wait is the option scan.poll.timeout. Last error: {error.message}",
                    error.error_code,
                ) from error
            if pause == FIRST_PAUSE_SECONDS:
                logger.warning("servers do not answer, retrying for up to %.0f s: %s", seconds, error)
        time.sleep(pause)
        pause = min(pause * 2, LAST_PAUSE_SECONDS)
