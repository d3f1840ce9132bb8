"""Functions made from source text show their lines, for as long as they live."""

from __future__ import annotations

import gc
import linecache
import traceback

import pytest

import fluss
from fluss import generated_code
from fluss.client.decode.materialize import row_maker
from fluss.generated_code import define


def ours() -> set[str]:
    return {name for name in linecache.cache if name.startswith("<fluss: ")}


def test_a_traceback_shows_the_line() -> None:
    divide = define("def divide(x):\n    return 1 / x\n", {}, "division")["divide"]
    with pytest.raises(ZeroDivisionError) as caught:
        divide(0)
    linecache.checkcache()
    shown = "".join(traceback.format_exception(caught.value))
    assert "<fluss: division, " in shown
    assert "return 1 / x" in shown


def test_so_does_one_of_the_client() -> None:
    plain, _ = row_maker(("a column",))
    with pytest.raises(TypeError) as caught:
        next(plain(None, 0, fluss.ChangeType.Insert, [None]))
    assert "zip(*columns)" in "".join(traceback.format_exception(caught.value))


def test_lines_live_as_long_as_a_function_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = [define(f"def number():\n    return {number}\n", {}, "numbers")["number"] for number in range(3)]
    names = {function.__code__.co_filename for function in functions}
    assert len(names) == 3
    generated_code._compiled.cache_clear()
    gc.collect()
    assert names <= ours()
    kept = functions.pop().__code__.co_filename
    functions.clear()
    gc.collect()
    assert not ours() & (names - {kept})


def test_the_same_source_is_compiled_once() -> None:
    first, second = (define("def same(): pass\n", {}, "the same")["same"] for _ in range(2))
    assert first.__code__ is second.__code__
    assert first is not second
