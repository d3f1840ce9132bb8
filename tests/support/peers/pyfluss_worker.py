"""A worker process in the environment of the published client pyfluss, which runs cases.

pyfluss has the import name of this project, so the two never share an interpreter. Test bodies for pyfluss ("cases",
in `tests/compat/cases`) run in a long-lived worker process in that environment. Parent and worker speak JSON lines:

    parent -> worker   {"run": 7, "case": "rows:round_trip", "settings": {...}, "timeout": 30}
    worker -> parent   {"ask": "restart", "run": 7, "number": 1}          a case wants the parent to do something
    parent -> worker   {"answer": 1, "error": null}
    worker -> parent   {"done": 7, "error": null | "traceback ...", "seconds": 1.2}

Threads: the worker's lines are read by one reader thread of the parent, which alone fills the result futures. A lock
guards writing to the worker. Questions of cases are answered on a thread each, since they may restart servers.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tools.peers.cache import CHECKOUT
from tools.peers.pyfluss_environment import pyfluss_python
from tools.waiting import patience

CASE_TIMEOUT_SECONDS = patience(90.0)
# The parent's patience beyond the case's own timeout: a worker that does not even report a timeout is stuck.
REPORT_GRACE_SECONDS = patience(15.0)
MAX_PARALLEL_CASES = 4


@dataclass(frozen=True)
class CaseResult:
    """How a case ended: `error` is None or the traceback from inside the worker."""

    error: str | None
    seconds: float


Answerer = Callable[[str], None]
"""Does what a case asks its parent for (for example "restart"); an exception becomes the case's exception."""


class PyflussWorker:
    """One process of the pyfluss environment that runs cases, several at a time."""

    def __init__(self, answerer: Answerer | None = None, *, parallel: int = MAX_PARALLEL_CASES) -> None:
        self._answerer = answerer
        self._numbers = itertools.count(1)
        self._results: dict[int, Future[CaseResult]] = {}
        self._write_lock = threading.Lock()
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment["PYTHONPATH"] = str(CHECKOUT)  # for `tests.compat`; `src` stays out, `fluss` must be pyfluss here
        environment.setdefault("RUST_LOG", "off")
        self._process = subprocess.Popen(
            [str(pyfluss_python()), "-m", "tests.compat.worker", str(parallel)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=CHECKOUT / "tests",  # not the checkout itself: nothing named fluss may shadow pyfluss
        )
        self._reader = threading.Thread(target=self._read, name="pyfluss-worker-reader", daemon=True)
        self._reader.start()

    @property
    def process_id(self) -> int:
        """The id of the worker process."""
        return self._process.pid

    def submit(
        self, case: str, settings: Mapping[str, Any], timeout_seconds: float = CASE_TIMEOUT_SECONDS
    ) -> Future[CaseResult]:
        """Queue the case "module:function"; the future gets its result."""
        number = next(self._numbers)
        future: Future[CaseResult] = Future()
        self._results[number] = future
        self._write({"run": number, "case": case, "settings": dict(settings), "timeout": timeout_seconds})
        return future

    def kill(self) -> None:
        """End the worker process at once: for a worker that does not even report timeouts any more."""
        self._process.kill()

    def close(self) -> None:
        """End the worker process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(patience(30))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(patience(30))

    def __enter__(self) -> PyflussWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, message: Mapping[str, Any]) -> None:
        stream = self._process.stdin
        assert stream is not None
        with self._write_lock:
            stream.write(json.dumps(message) + "\n")
            stream.flush()

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        for line in stream:
            message = json.loads(line)
            if "ask" in message:
                threading.Thread(target=self._answer, args=(message,), daemon=True).start()
            else:
                future = self._results.pop(message["done"])
                future.set_result(CaseResult(message["error"], message["seconds"]))
        code = self._process.wait()
        for number in list(self._results):
            self._results.pop(number).set_exception(RuntimeError(f"the pyfluss worker ended with code {code}"))

    def _answer(self, message: Mapping[str, Any]) -> None:
        error = None
        try:
            if self._answerer is None:
                raise RuntimeError(f"this target cannot {message['ask']}")
            self._answerer(message["ask"])
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
        self._write({"answer": message["number"], "error": error})
