"""Waiting for servers that are away: a restart must not end a query that runs for months.

An address at which nobody has answered this process yet may be wrong as well, so it is waited for less long
(`start_patience_seconds`), and the error says so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from fluss.errors import ErrorCode, FlussError
from fluss.spark.options.parsing import FlussOptions
from fluss.spark.sessions.connecting import has_answered

FIRST_PAUSE_SECONDS = 0.05
LAST_PAUSE_SECONDS = 1.0
STREAM_PATIENCE_FACTOR = 5
"""Streams wait this many times as long as batch reads do, which may wait for `scan.poll.timeout`."""

T = TypeVar("T")
logger = logging.getLogger(__name__)

# Besides those that are retriable by their nature: nobody answered.
_OUTAGE_CODES = frozenset({ErrorCode.REQUEST_TIME_OUT, ErrorCode.NETWORK_EXCEPTION})


def is_outage(error: FlussError) -> bool:
    """Whether the same question may be answered later."""
    return error.is_retriable or error.error_code in _OUTAGE_CODES


def patience_seconds(options: FlussOptions) -> float:
    """How long a query waits for servers that are away."""
    return STREAM_PATIENCE_FACTOR * options.read.poll_timeout_ms / 1000


def start_patience_seconds(options: FlussOptions) -> float:
    """How long something that begins waits for them: as a query if they are known here, else `scan.poll.timeout`."""
    if has_answered(options.client):
        return patience_seconds(options)
    return options.read.poll_timeout_ms / 1000


def patiently(call: Callable[[], T], seconds: float) -> T:
    """The result of a call, repeated while servers are away, for at most so long."""
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
                    f"the servers have not answered for {seconds:.0f} s: is the address right, and do they run? How "
                    f"long to wait is the option scan.poll.timeout. Last: {error.message}",
                    error.error_code,
                ) from error
            if pause == FIRST_PAUSE_SECONDS:
                logger.warning("servers are away, asking again for up to %.0f s: %s", seconds, error)
        time.sleep(pause)
        pause = min(pause * 2, LAST_PAUSE_SECONDS)
