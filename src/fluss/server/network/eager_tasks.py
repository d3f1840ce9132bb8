"""Runs a coroutine up to its first real wait immediately, and makes a task only of the rest.

The part of a handler before its first `await` must run in arrival order, that is, immediately. Most handlers never
wait, and for those a task would cost more than the work. Python 3.12 has eager tasks for this; on older versions the
first step is run here and the rest continues in a task.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator
from typing import Any


class _Rest:
    """The rest of a coroutine that has already yielded `waiting_for`."""

    __slots__ = ("_coroutine", "_waiting_for")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waiting_for: object) -> None:
        self._coroutine = coroutine
        self._waiting_for = waiting_for

    def __await__(self) -> Generator[Any, Any, Any]:
        waiting_for = self._waiting_for
        step: Callable[[Any], object]
        while True:
            try:
                value = yield waiting_for
            except BaseException as error:  # includes cancellation: the coroutine handles it
                step, argument = self._coroutine.throw, error
            else:
                step, argument = self._coroutine.send, value
            try:
                waiting_for = step(argument)
            except StopIteration as stop:
                return stop.value


async def _finish(rest: _Rest) -> object:
    return await rest


def start_eagerly(coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
    """Return a future for the coroutine's result; it is already done if the coroutine did not have to wait."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    try:
        waiting_for = coroutine.send(None)
    except StopIteration as stop:
        done: asyncio.Future[Any] = loop.create_future()
        done.set_result(stop.value)
        return done
    except Exception as error:
        failed: asyncio.Future[Any] = loop.create_future()
        failed.set_exception(error)
        return failed
    return loop.create_task(_finish(_Rest(coroutine, waiting_for)))
