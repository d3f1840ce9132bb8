"""Work for the tablet's helper threads, with an answer in every case.

An executor starts its threads when the first work comes. Where the system gives no thread (a limit of processes, no
memory), `submit` raises with the work in its queue already, and it would run, unseen, whenever a later call gets a
thread. Whoever waits for the work, such as appends to a bucket that is being opened, must not wait for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from fluss.errors import ErrorCode, FlussError

T = TypeVar("T")


def start_work(executor: Executor, work: Callable[[], T]) -> asyncio.Future[T]:
    """`work` in a thread of the executor; a future that has failed when there is no thread for it."""
    loop = asyncio.get_running_loop()
    given_up = False

    def run() -> T:
        if given_up:
            raise FlussError("nobody waits for this any more", ErrorCode.UNKNOWN_SERVER_ERROR)
        return work()

    try:
        return loop.run_in_executor(executor, run)
    except (RuntimeError, MemoryError) as error:
        given_up = True
        failed: asyncio.Future[T] = loop.create_future()
        text = f"the server has no thread for the work ({error}); try again"
        failed.set_exception(FlussError(text, ErrorCode.STORAGE_EXCEPTION))
        return failed
