"""Work for the tablet's helper threads, with a result in every case.

An executor starts its threads when work arrives. If the system has no thread left (a limit of processes, no memory),
`submit` raises with the work already in its queue, and the work would run unnoticed as soon as a later call gets a
thread. Callers that wait for the work, such as appends to a bucket that is being opened, must not wait for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from fluss.errors import ErrorCode, FlussError

T = TypeVar("T")


def start_work(executor: Executor, work: Callable[[], T]) -> asyncio.Future[T]:
    """Run `work` in a thread of the executor; the future fails at once if no thread can be started."""
    loop = asyncio.get_running_loop()
    given_up = False

    def run() -> T:
        if given_up:
            raise FlussError("the work was cancelled: no thread could be started", ErrorCode.UNKNOWN_SERVER_ERROR)
        return work()

    try:
        return loop.run_in_executor(executor, run)
    except (RuntimeError, MemoryError) as error:
        given_up = True
        failed: asyncio.Future[T] = loop.create_future()
        text = f"the server cannot start a thread for the work ({error}); retry later"
        failed.set_exception(FlussError(text, ErrorCode.STORAGE_EXCEPTION))
        return failed
