"""`with` and `async with` for all client objects that must be closed.

An error inside a block takes precedence: an error of closing is raised only if there was none.
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
        """Called at the end of a block."""

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
            if exc_value is None:  # else the error of the block is raised, which takes precedence
                raise
        return False


A = TypeVar("A", bound="EndsWithAnyBlock")


class EndsWithAnyBlock(EndsWithBlock):
    """Mix-in for `with` and `async with`; the latter must not block the event loop."""

    async def _leave_awaiting(self) -> None:
        """`_leave` for event loops; override it if `_leave` waits."""
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
            if exc_value is None:  # else the error of the block is raised, which takes precedence
                raise
        return False
