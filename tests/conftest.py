"""Settings for all tests: bounded property tests, and a test that hangs fails instead of holding up the others."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from types import FrameType

import pytest
from hypothesis import HealthCheck, settings

# Generous, since it is only there for tests that would never end. Stacks are printed earlier (faulthandler_timeout).
TEST_LIMIT_SECONDS = float(os.environ.get("FLUSS_TEST_LIMIT_SECONDS", "300"))

# Deadlines per example measure the machine, not the code. "soak" is for long runs: HYPOTHESIS_PROFILE=soak.
_HEALTH_CHECKS_OFF = (HealthCheck.too_slow, HealthCheck.data_too_large)
settings.register_profile("normal", max_examples=60, deadline=None, suppress_health_check=_HEALTH_CHECKS_OFF)
settings.register_profile("soak", max_examples=5000, deadline=None, suppress_health_check=_HEALTH_CHECKS_OFF)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "normal"))


# Apache Fluss elects leaders and spreads new schemas after it has answered, and on a busy machine sometimes never does.
# Such a test runs again on a fresh table; every other failure on the peer counts at once, and on our server all do.
PEER_HICCUPS = ["no leader at the moment", "No leader found", "Invalid schema id"]
MAX_RERUNS_ON_PEER = 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests on the peer run again after its hiccups."""
    for item in items:
        if "[apache" in item.nodeid or "-apache" in item.nodeid:
            item.add_marker(pytest.mark.flaky(reruns=MAX_RERUNS_ON_PEER, only_rerun=PEER_HICCUPS))


class TestHangsError(Exception):
    """The test ran longer than `TEST_LIMIT_SECONDS`."""

    __test__ = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Interrupt the main thread when the limit is over, wherever it waits."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise TestHangsError(f"no result after {TEST_LIMIT_SECONDS:.0f} s")

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, TEST_LIMIT_SECONDS)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
