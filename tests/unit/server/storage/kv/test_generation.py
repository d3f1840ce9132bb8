"""Large puts keep their own dicts, and lookups give the same result as one merged dict."""

from __future__ import annotations

import random

import pytest

from fluss.server.storage.kv import generation
from fluss.server.storage.kv.generation import MAX_KEYS_OF_PARTS, MAX_PARTS, MIN_PART_ROWS, Generation, Rows


def _found(rows: Generation, keys: list[bytes], key_count: int) -> Rows:
    found: Rows = {}
    for part in rows.parts(key_count):
        found.update({key: part[key] for key in keys if key in part})
    return found


def test_any_mixture_of_puts_and_lookups_matches_one_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "MIN_PART_ROWS", 4)
    monkeypatch.setattr(generation, "MAX_PARTS", 5)
    choice = random.Random(5)
    keys = [bytes((number,)) for number in range(40)]
    rows, model = Generation(), dict[bytes, bytes | None]()
    for number in range(300):
        put = {key: choice.choice([None, b"%d" % number]) for key in choice.sample(keys, choice.randint(1, 9))}
        rows.add(put)
        model.update(put)
        asked = choice.choice([1, 1, 1, MAX_KEYS_OF_PARTS + 1])
        assert _found(rows, keys, asked) == model


def test_large_puts_are_not_copied_until_many_keys_are_looked_up() -> None:
    rows = Generation()
    puts: list[Rows] = [{b"%d %d" % (put, row): b"1" for row in range(MIN_PART_ROWS)} for put in range(3)]
    for put in puts:
        rows.add(put)
    assert [id(part) for part in rows.parts(MAX_KEYS_OF_PARTS)][1:] == [id(put) for put in puts]
    (joined,) = rows.parts(MAX_KEYS_OF_PARTS + 1)
    assert joined == {**puts[0], **puts[1], **puts[2]}
    assert [len(put) for put in puts] == [MIN_PART_ROWS] * 3, "they belong to their puts"


def test_the_number_of_parts_has_a_limit() -> None:
    rows = Generation()
    for put in range(2 * MAX_PARTS):
        rows.add({b"%d %d" % (put, row): b"1" for row in range(MIN_PART_ROWS)})
        assert len(rows.parts(1)) <= MAX_PARTS
    assert sum(map(len, rows.parts(1))) == 2 * MAX_PARTS * MIN_PART_ROWS
