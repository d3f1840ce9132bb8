"""Readers of the documents, one per kind of server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.documents import Reader
from tests.support.servers.targets import TARGET_NAMES, Target, running_target


@pytest.fixture(params=TARGET_NAMES)
def target(request: pytest.FixtureRequest) -> Target:
    """A server of one kind; the same one for all tests of a run."""
    return running_target(request.param)


@pytest.fixture
def reader(target: Target) -> Iterator[Reader]:
    """A user with an open connection who types blocks of a document."""
    reader = Reader(target)
    reader.connect()
    yield reader
    reader.close()
