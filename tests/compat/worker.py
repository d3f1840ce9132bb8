"""The process inside the pyfluss environment that runs cases; see `tests.support.pyfluss_environment` for the lines.

One event loop runs everything. Cases wait far more than they compute (pyfluss holds a lone write for 100 ms, an idle
fetch for 500 ms), so a few of them run at once. A case marked `alone` has the worker to itself.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
import traceback
from typing import Any

from tests.compat.cases.kit import Context, registered
from tests.support.waiting import patience

_waiting_answers: dict[int, asyncio.Future[None]] = {}


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


async def _ask(run: int, what: str) -> None:
    number = len(_waiting_answers) + 1
    _waiting_answers[number] = asyncio.get_running_loop().create_future()
    _say({"ask": what, "run": run, "number": number})
    await _waiting_answers[number]


async def _run(message: dict[str, Any], places: asyncio.Semaphore) -> None:
    run: int = message["run"]
    error = None
    async with places:
        started = time.monotonic()
        try:
            module = message["case"].partition(":")[0]
            importlib.import_module(f"tests.compat.cases.{module}")
            body = registered()[message["case"]].body
            context = Context(message["settings"], lambda what: _ask(run, what))
            try:
                await asyncio.wait_for(body(context), message["timeout"])
            finally:
                await asyncio.wait_for(context.close(), patience(60))
        except TimeoutError:
            error = f"no result after {message['timeout']} s\n{traceback.format_exc()}"
        except BaseException:
            error = traceback.format_exc()
        _say({"done": run, "error": error, "seconds": time.monotonic() - started})


async def _serve(parallel: int) -> None:
    loop = asyncio.get_running_loop()
    places = asyncio.Semaphore(parallel)
    tasks: set[asyncio.Task[None]] = set()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        message = json.loads(line)
        if "answer" in message:
            waiting = _waiting_answers[message["answer"]]
            if message["error"] is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(RuntimeError(message["error"]))
        else:
            task = asyncio.create_task(_run(message, places))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
