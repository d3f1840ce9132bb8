"""Work for helper threads when the system has no thread left."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fluss.errors import FlussError
from fluss.server.tablet.buckets.helper_threads import start_work


def test_work_without_a_thread_fails_and_is_not_done_later(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def run() -> None:
        with ThreadPoolExecutor(1) as executor:
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", no_thread)
                refused = start_work(executor, lambda: done.append("refused"))
            with pytest.raises(FlussError, match="can't start new thread"):
                await refused
            await start_work(executor, lambda: done.append("later"))

    asyncio.run(run())
    assert done == ["later"]
