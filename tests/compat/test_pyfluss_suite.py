"""pyfluss's own test-suite, from the source package that it is published with, against our server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.targets import StandaloneTarget
from tests.support.peers.pyfluss_suite import pyfluss_suite, run_suite
from tools.peers.cache import PeerMissingError

# Its polls that expect nothing wait for three seconds each.
pytestmark = pytest.mark.all

TESTS_OF_PYFLUSS = 98
DOCUMENT = Path(__file__).parents[2] / "docs" / "client.md"


@pytest.fixture(scope="module")
def _fetched() -> None:
    """Here and not in the test, whose time is limited."""
    try:
        pyfluss_suite()
    except PeerMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def server() -> Iterator[StandaloneTarget]:
    server = StandaloneTarget("plain")
    yield server
    server.stop()


@pytest.mark.usefixtures("_fetched")
def test_pyfluss_passes_its_own_tests_on_our_server(server: StandaloneTarget) -> None:
    settings = server.settings()
    result = run_suite(settings["bootstrap"], settings["sasl_bootstrap"])
    assert not result.others, result.output
    assert len(result.passed) == TESTS_OF_PYFLUSS, result.output


@pytest.mark.usefixtures("_fetched")
def test_our_client_differs_where_the_document_says(server: StandaloneTarget) -> None:
    """In either direction: a test that passes by now does not belong into the list."""
    text = DOCUMENT.read_text(encoding="utf-8")
    named = re.findall(r"^\| `(test_\w+::test_\w+)` \|", text, re.MULTILINE)
    settings = server.settings()
    result = run_suite(settings["bootstrap"], settings["sasl_bootstrap"], with_our_client=True)
    assert sorted(result.others) == sorted(named), result.output
    assert len(result.passed) + len(named) == TESTS_OF_PYFLUSS, result.output
    assert f"with `fluss.aio` in pyfluss's place\n{len(result.passed)} pass." in text
