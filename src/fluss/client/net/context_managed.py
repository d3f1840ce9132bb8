"""`with` and `async with` for everything of the client that ends.

An error inside of a block is the interesting one: what goes wrong at its end is raised only if there was none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Literal, TypeVar

B = TypeVar("B", bound="EndsWithBlock")


class EndsWithBlock(ABC):
    """Mix-in for `with`."""

    @abstractmethod
    def _leave(self) -> None:
        """What the end of a block does."""

    def __enter__(self: B) -> B:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> Literal[False]:
        try:
            self._leave()
        except Exception:
            if exc_value is None:  # else the error of the block is on its way, and it is the one that matters
                raise
        return False


A = TypeVar("A", bound="EndsWithAnyBlock")


class EndsWithAnyBlock(EndsWithBlock):
    """Mix-in: `async with` too, where the end must not block the event loop."""

    async def _leave_awaiting(self) -> None:
        """What `_leave` does, for event loops; the same unless it waits."""
        self._leave()

    async def __aenter__(self: A) -> A:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> Literal[False]:
        try:
            await self._leave_awaiting()
        except Exception:
            if exc_value is None:  # else the error of the block is on its way, and it is the one that matters
                raise
        return False
