"""Every test here takes `target` and runs once per kind of server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

import fluss
from tests.support.targets import TARGET_NAMES, Target, running_target


@pytest.fixture(params=TARGET_NAMES)
def target(request: pytest.FixtureRequest) -> Target:
    """A server of one kind; the same one for all tests of a run."""
    return running_target(request.param)


@pytest.fixture
def connection(target: Target) -> Iterator[fluss.FlussConnection]:
    """An open connection."""
    with fluss.FlussConnection.open(target.config()) as connection:
        yield connection


@pytest.fixture
def table_name() -> str:
    """A name that no other test uses: servers are shared."""
    return f"t_{uuid.uuid4().hex[:12]}"
