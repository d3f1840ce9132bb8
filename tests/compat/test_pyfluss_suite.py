"""pyfluss's own test-suite, from the source package that it is published with, against our server."""

from __future__ import annotations

import pytest

from tests.compat.targets import StandaloneTarget
from tests.support.peers import PeerMissingError
from tests.support.pyfluss_suite import pyfluss_suite, run_suite

# Its polls that expect nothing wait for three seconds each.
pytestmark = pytest.mark.all

TESTS_OF_PYFLUSS = 98


@pytest.fixture(scope="module")
def _fetched() -> None:
    """Here and not in the test, whose time is limited."""
    try:
        pyfluss_suite()
    except PeerMissingError as missing:
        pytest.skip(str(missing))


@pytest.mark.usefixtures("_fetched")
def test_pyfluss_passes_its_own_tests_on_our_server() -> None:
    server = StandaloneTarget("plain")
    try:
        settings = server.settings()
        result = run_suite(settings["bootstrap"], settings["sasl_bootstrap"])
    finally:
        server.stop()
    assert not result.others, result.output
    assert len(result.passed) == TESTS_OF_PYFLUSS, result.output
