"""The order in which rows are written: whichever it is, each key has its own value."""

from __future__ import annotations

import random

import pytest

from fluss.server.storage.kv import limits
from fluss.server.storage.kv.write_order import written_order


@pytest.mark.parametrize("count", [0, 3, 4, 20, 21, 50], ids=lambda count: f"{count} rows")
@pytest.mark.parametrize("is_sorted", [True, False], ids=["sorted", "not sorted"])
def test_each_key_has_its_own_value(monkeypatch: pytest.MonkeyPatch, count: int, is_sorted: bool) -> None:
    monkeypatch.setattr(limits, "SORTED_WRITE_MIN_ROWS", 4)
    monkeypatch.setattr(limits, "SORTED_AT_ONCE_MAX_ROWS", 20)
    monkeypatch.setattr(limits, "WRITE_CHUNK_ROWS", 7)
    keys = [b"%02d" % number for number in range(count)]
    if not is_sorted:
        random.Random(count).shuffle(keys)
    group = {key: None if key.endswith(b"3") else b"v" + key for key in keys}
    written, values = written_order(group)
    pairs = list(zip(written, values, strict=True))
    assert dict(pairs) == group
    if 4 <= count <= 20:
        assert pairs == sorted(group.items())
