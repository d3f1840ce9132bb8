"""A pytest plug-in: heals an Apache Fluss that has lost its way, and tells the tests apart that failed on one."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.support.runner.time_limits import TestHangsError
from tools.peers.apache_fluss import RUNNING


class PeerLostError(Exception):
    """A test failed on a cluster that had lost its way meanwhile, which says nothing about us."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """No test begins with a cluster that was upset before."""
    for cluster in RUNNING:
        cluster.heal()
    return (yield from _told_apart())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """The test itself."""
    return (yield from _told_apart())


def _told_apart() -> Generator[None, object, object]:
    """A test that was upset together with its cluster can be told by its error."""
    try:
        return (yield)
    except (Exception, pytest.fail.Exception, TestHangsError) as error:
        if any(cluster.is_lost() for cluster in RUNNING):
            raise PeerLostError("Apache Fluss has ended or lost its way during this test") from error
        raise
