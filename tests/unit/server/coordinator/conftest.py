"""Fixtures: a coordinator without sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness.coordinator import CoordinatorHarness


@pytest.fixture
def make_coordinator(tmp_path: Path) -> Iterator[Callable[..., CoordinatorHarness]]:
    """Coordinators with options of the test's choice, each in its own directory."""
    made: list[CoordinatorHarness] = []

    def make(**overrides: Any) -> CoordinatorHarness:
        directory = tmp_path / str(len(made))
        directory.mkdir()
        made.append(CoordinatorHarness(directory, **overrides))
        return made[-1]

    yield make
    for harness in made:
        harness.close()


@pytest.fixture
def coordinator(make_coordinator: Callable[..., CoordinatorHarness]) -> CoordinatorHarness:
    """A coordinator with default options and one tablet."""
    return make_coordinator()
