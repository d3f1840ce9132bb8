"""Where documents had found modules that have moved since."""

from __future__ import annotations

import importlib
import sys

import pytest

import fluss.api.staged
import fluss.lake.coordinator_calls

MOVED = {"fluss.client.staged": fluss.api.staged, "fluss.client.lake_calls": fluss.lake.coordinator_calls}


@pytest.mark.parametrize("old", MOVED)
def test_an_old_place_says_where_to_go_and_has_the_same_names(old: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {MOVED[old].__name__}"):
        module = importlib.import_module(old)
    names = [name for name in vars(MOVED[old]) if not name.startswith("_") and name in module.__all__]
    assert sorted(names) == sorted(module.__all__)
    assert all(getattr(module, name) is getattr(MOVED[old], name) for name in names)
