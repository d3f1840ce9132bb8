"""Every case of `tests/compat/cases` with the published pyfluss client against every kind of server.

The expectations were found on Apache Fluss 0.9.1. `dev.py test --all` runs all cases there, so that they stay true;
pytest by itself a part of them, those marked `peer`. `FLUSS_COMPAT_APACHE` says it by hand: `all`, `some` or `off`.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, TimeoutError
from contextlib import ExitStack

import pytest
from _pytest.mark import ParameterSet

from tests.compat import cases as case_package
from tests.compat.cases.kit import Case, registered
from tests.compat.targets import TARGETS, Target
from tests.support.peers.pyfluss_worker import CASE_TIMEOUT_SECONDS, REPORT_GRACE_SECONDS, CaseResult, PyflussWorker
from tests.support.runner.lanes import LANE_VARIABLE
from tools.peers.apache_fluss import library
from tools.peers.cache import PeerMissingError
from tools.peers.pyfluss_environment import pyfluss_python
from tools.waiting import patience

APACHE = os.environ.get("FLUSS_COMPAT_APACHE") or ("all" if os.environ.get(LANE_VARIABLE) == "all" else "some")
OWN_SERVER_TIMEOUT_SECONDS = patience(150.0)

Server = tuple[str, str]
"""Target and kind of server; a case with a server of its own names itself as the kind."""


def all_cases() -> list[Case]:
    """The cases of all modules, by module and place in it."""
    for module in pkgutil.iter_modules(case_package.__path__):
        importlib.import_module(f"{case_package.__name__}.{module.name}")
    return list(registered().values())


def runs_on(case: Case, target: str) -> bool:
    """Whether a case belongs into this test run on this target."""
    if target == "apache":
        return (APACHE == "all" and case.apache) or (APACHE != "off" and case.peer and case.server == "plain")
    return target == "standalone" or case.server in ("plain", "guarded")


def parameters() -> list[ParameterSet]:
    """One parameter set per target and case, in an order in which each server is needed without interruption."""
    found = []
    for target in TARGETS:
        for case in sorted(all_cases(), key=lambda case: case.server):
            if runs_on(case, target):
                kind = f"own {case.name}" if case.server == "own" else case.server
                # The embedded server is the same code; the gate has the whole contract on it.
                marks = [pytest.mark.all] if target == "embedded" else []
                found.append(pytest.param((target, kind), case.name, id=f"{target}-{case.name}", marks=marks))
    return found


def missing_peer(target: str) -> str | None:
    """Fetch what a target needs; why it cannot be had, or None."""
    try:
        pyfluss_python()
        if target == "apache":
            library()
    except PeerMissingError as missing:
        return str(missing)
    return None


class Runs:
    """The server and the worker of the tests that run now; both are replaced when a test needs another server.

    When a server is started, every case that this test run wants from it is queued at once: cases run a few at a time
    in the worker while the tests collect their results one after the other. If Apache Fluss had to be healed meanwhile,
    the cases whose results were not collected may have met it while it was away: they run again, on a new cluster.
    """

    def __init__(self, wanted: list[tuple[Server, str]]) -> None:
        self._wanted = wanted
        self._server: Server | None = None
        self._running: Target | None = None
        self._asked_for: set[tuple[Server, str]] = set()
        # Fetching may take minutes on a fresh checkout: here and not in the first test, whose time is limited.
        self._missing = {target: missing_peer(target) for target in {server[0] for server, _ in wanted}}
        self._open = ExitStack()
        self._worker: PyflussWorker | None = None
        self._submit: Callable[[str], Future[CaseResult]]
        self._results: dict[str, Future[CaseResult]] = {}

    def result(self, server: Server, name: str) -> CaseResult:
        """How the case ended; waits for it."""
        reason = self._missing[server[0]]
        if reason is not None:
            pytest.skip(reason)
        if server != self._server or self._running is None or not self._running.is_as_it_was():
            self.close()
            self._start(server)
            self._server = server
        self._asked_for.add((server, name))
        try:
            # One that runs again after a hiccup of the peer has its result taken already.
            future = self._results.pop(name, None) or self._submit(name)
            return future.result(timeout=OWN_SERVER_TIMEOUT_SECONDS + REPORT_GRACE_SECONDS)
        except TimeoutError:
            assert self._worker is not None
            self._worker.kill()  # so that the tests behind this one do not wait as long
            raise

    def close(self) -> None:
        """Stop the worker, then the server."""
        self._server = self._running = None
        self._open.close()

    def _start(self, server: Server) -> None:
        target, kind = server
        own = kind.startswith("own ")
        self._running = running = TARGETS[target]("own" if own else kind)
        self._open.callback(running.stop)
        self._worker = worker = self._open.enter_context(PyflussWorker(running.ask))
        timeout = OWN_SERVER_TIMEOUT_SECONDS if own else CASE_TIMEOUT_SECONDS
        names = [name for wanted, name in self._wanted if wanted == server and (server, name) not in self._asked_for]
        self._submit = lambda name: worker.submit(name, running.settings(), timeout)
        self._results = {name: self._submit(name) for name in names}


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Iterator[Runs]:
    """Knows which cases the command line has selected."""
    wanted = []
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.module is request.module:
            wanted.append((item.callspec.params["server"], item.callspec.params["case_name"]))
    made = Runs(wanted)  # type: ignore[arg-type]
    yield made
    made.close()


@pytest.mark.parametrize(("server", "case_name"), parameters())
def test_case(runs: Runs, server: Server, case_name: str) -> None:
    """The case ends without an error."""
    outcome = runs.result(server, case_name)
    if outcome.error is not None:
        pytest.fail(f"inside the pyfluss worker:\n{outcome.error}", pytrace=False)
