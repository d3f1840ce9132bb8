"""Fixtures: catalog stores in a fresh directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fluss.server.catalog import CatalogStore


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Callable[[], CatalogStore]]:
    """Open the same catalog file any number of times, each with its own connection."""
    opened: list[CatalogStore] = []

    def open_one() -> CatalogStore:
        opened.append(CatalogStore(tmp_path / "catalog.sqlite"))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], CatalogStore]) -> CatalogStore:
    """One store with the default database."""
    store = open_store()
    store.create_first_database("fluss", 1)
    return store
