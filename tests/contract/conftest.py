"""Every test here takes `target` or `server` and runs once per kind of server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

import fluss
from tests.support.servers.restartable import DISTURBANCES, KINDS, Disturbance, RestartableServer, restartable_server
from tests.support.servers.targets import TARGET_NAMES, Target, running_target


@pytest.fixture(params=TARGET_NAMES)
def target(request: pytest.FixtureRequest) -> Target:
    """A server of one kind; the same one for all tests of a run."""
    return running_target(request.param)


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[RestartableServer]:
    """A server that may be taken away and brought back; the same one for all tests of a run."""
    server = restartable_server(request.param)
    yield server
    server.comes_back()  # for the next test, if this one failed in between


@pytest.fixture(params=DISTURBANCES)
def disturbance(request: pytest.FixtureRequest) -> Iterator[Disturbance]:
    """A server and a way to disturb it."""
    disturbance = Disturbance(request.param)
    yield disturbance
    disturbance.server.comes_back()


@pytest.fixture
def connection(target: Target) -> Iterator[fluss.FlussConnection]:
    """An open connection."""
    with fluss.FlussConnection.open(target.config()) as connection:
        yield connection


@pytest.fixture
def table_name() -> str:
    """A name that no other test uses: servers are shared."""
    return f"t_{uuid.uuid4().hex[:12]}"
