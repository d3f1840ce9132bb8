"""Folding a changelog gives what a dict gives, in memory and through files."""

from __future__ import annotations

import os
import random
import tempfile

import pytest

from fluss.client.state import key_fold
from fluss.client.state.key_fold import KeyFold
from fluss.model.paths import ChangeType
from tests.unit.client.state.test_changelog_state import TABLE, Change, log_rows

KEYS = 200
CHANGES = 3_000
ROWS_PER_BATCH = 70


def random_changes(seed: int) -> tuple[list[tuple[ChangeType, Change]], dict[int, str | None]]:
    """Changes as a server writes them, and the rows that they lead to."""
    rng = random.Random(seed)
    model: dict[int, str | None] = {}
    changes: list[tuple[ChangeType, Change]] = []
    for number in range(CHANGES):
        key = rng.randrange(KEYS)
        if key in model and rng.random() < 0.4:
            changes.append((ChangeType.DELETE, (key, model.pop(key))))
            continue
        name = None if rng.random() < 0.1 else f"{number} {'x' * rng.randrange(50)}"
        if key in model:
            changes += [(ChangeType.UPDATE_BEFORE, (key, model[key])), (ChangeType.UPDATE_AFTER, (key, name))]
        else:
            changes.append((ChangeType.INSERT, (key, name)))
        model[key] = name
    return changes, model


@pytest.mark.parametrize("max_memory_bytes", [2**30, 6_000, 1])
@pytest.mark.parametrize("spill_rows", [1, 500])
def test_folding_equals_a_dict(max_memory_bytes: int, spill_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_fold, "SPILL_ROWS", spill_rows)
    changes, model = random_changes(7)
    fold = KeyFold(TABLE, max_memory_bytes=max_memory_bytes)
    try:
        for start in range(0, len(changes), ROWS_PER_BATCH):
            fold.add(log_rows(changes[start : start + ROWS_PER_BATCH]))
        assert fold.is_spilled == (max_memory_bytes < 2**30)
        rows = [row for batch in fold.batches() for row in batch.to_pylist()]
    finally:
        fold.close()
    assert {row["id"]: row["name"] for row in rows} == model
    assert len(rows) == len(model)


def test_nothing_gives_nothing_and_no_file_stays(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    empty = KeyFold(TABLE)
    assert list(empty.batches()) == []
    fold = KeyFold(TABLE, max_memory_bytes=1)
    changes, _ = random_changes(8)
    fold.add(log_rows(changes[:100]))
    assert len(os.listdir(str(tmp_path))) == 1
    next(fold.batches())  # not read to its end
    fold.close()
    fold.close()
    assert os.listdir(str(tmp_path)) == []
