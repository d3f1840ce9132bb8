"""No test is red because the machine is busy: how tests wait, and what they do not assert on.

The rules are coarse on purpose. What breaks one for a good reason is in a list here, with the reason.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT, files, name, nodes
from tools import waiting
from tools.servers.ports import NEVER_HANDED_OUT, PORT_SHARES, free_ports, ports_of
from tools.waiting import eventually, patience, wait_until

# Tests, and what they share with benchmarks and tools.
FOLDERS = {ROOT / "tests", ROOT / "tools" / "peers", ROOT / "tools" / "servers"}
TESTS = [path for path in files(".py") if FOLDERS & set(path.parents) or path == ROOT / "tools" / "waiting.py"]
CLOCKS = ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "process_time_ns")
NAMES_OF_TIMES = {"elapsed", "took", "passed", "duration", "seconds"}

# Loops that sleep, by file and function.
LOOPS = {
    "tools/waiting.py wait_until": "the way to wait",
    "tools/waiting.py eventually": "the way to wait",
    "tools/peers/apache_fluss.py _wait_for_zookeeper": "raises what tells a test to skip or to run again",
    "tools/peers/apache_fluss.py wait_until_ready": "raises what tells a test to skip or to run again",
    "tests/support/servers/restartable.py is_sound": "a question: no is an answer",
    "tests/support/runner/dead_workers.py main": "watches a process for as long as it lives",
    "tests/support/tables/kv_reader.py _look_up": "the reading as a whole has a deadline",
    "tests/support/tables/log_reader.py stored_batches": "the reading as a whole has a deadline",
    "tests/support/tables/log_workload.py run": "a writer that tries again until it is stopped",
    "tests/compat/cases/kv_restart.py write": "the pace of a writer that is stopped",
    "tests/compat/cases/restart.py write": "the pace of a writer that is stopped",
    "tests/support/spark/cluster_job.py misbehaving": "an executor knows nothing of tests.support",
    "tests/support/spark/stream_queries.py wait_for": "the deadline begins again with every micro-batch",
}

# Assertions that something took no longer than so much, by file and function.
BOUNDS = {
    "tests/support/spark/stream_queries.py ended": "the deadline begins again with every micro-batch",
    "tests/support/spark/stream_queries.py wait_for": "the deadline begins again with every micro-batch",
}


def functions(path: Path) -> Iterator[tuple[str, list[ast.AST]]]:
    """Each function with what is in it and not in a function inside of it."""
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name(path)} {node.name}", list(_own(node))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _own(child)


def _is_call_of(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names


def _sleeps(node: ast.AST) -> bool:
    """Not with 0, which only lets other coroutines have their turn."""
    return _is_call_of(node, "sleep") and ast.unparse(node.args[0]) != "0"  # type: ignore[attr-defined]


def sleeping_loops(parts: list[ast.AST]) -> bool:
    return any(isinstance(node, ast.While) and any(map(_sleeps, _own(node))) for node in parts)


def upper_bounds_of_time(parts: list[ast.AST]) -> bool:
    """Whether an assertion says that a clock, or what is called like a time in a function with one, is below."""
    if not any(_is_clock(node) for node in parts):
        return False
    asserted = [inner for node in parts if isinstance(node, ast.Assert) for inner in ast.walk(node.test)]
    return any(_is_bound(node) for node in asserted if isinstance(node, ast.Compare))


def _is_clock(node: ast.AST) -> bool:
    return _is_call_of(node, *CLOCKS) or (_is_call_of(node, "time") and "loop" in ast.unparse(node))


def _is_bound(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    for smaller, operator, larger in zip(sides, node.ops, sides[1:], strict=False):
        below = smaller if isinstance(operator, ast.Lt | ast.LtE) else larger
        is_order = isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
        if is_order and any(_is_clock(part) or _is_time(part) for part in ast.walk(below)):
            return True
    return False


def _is_time(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in NAMES_OF_TIMES


def test_what_waits_uses_the_one_way_to_wait() -> None:
    found = {where for path in TESTS for where, parts in functions(path) if sleeping_loops(parts)}
    assert found == set(LOOPS)


def test_nothing_is_asserted_to_be_fast() -> None:
    found = {where for path in TESTS for where, parts in functions(path) if upper_bounds_of_time(parts)}
    assert found == set(BOUNDS)


def body_of(code: str) -> list[ast.AST]:
    return list(_own(ast.parse(f"def function():\n    {code}").body[0]))


def test_the_rules_find_what_they_look_for() -> None:
    assert sleeping_loops(body_of("while not done: time.sleep(0.1)"))
    assert sleeping_loops(body_of("while True: await asyncio.sleep(PAUSE)"))
    assert not sleeping_loops(body_of("while True: await asyncio.sleep(0)"))
    assert not sleeping_loops(body_of("time.sleep(0.1)"))
    assert upper_bounds_of_time(body_of("assert time.monotonic() - start < 5"))
    assert upper_bounds_of_time(body_of("assert 1 < time.perf_counter() - start <= 5"))
    assert upper_bounds_of_time(body_of("took = time.monotonic() - start; assert 5 > took"))
    assert upper_bounds_of_time(body_of("assert asyncio.get_running_loop().time() < deadline"))
    assert not upper_bounds_of_time(body_of("assert time.monotonic() - start > 5"))
    assert not upper_bounds_of_time(body_of("start = time.monotonic(); assert rows < 5"))


# ---- the helpers themselves ----


def test_a_wait_returns_what_came() -> None:
    answers = iter([0, "", [], "rows"])
    assert wait_until(lambda: next(answers), "rows") == "rows"


def test_a_wait_in_vain_says_what_was_seen() -> None:
    with pytest.raises(AssertionError, match=r"not within \d\.\d s: three rows; the last answer: \[\]; last seen: 2"):
        wait_until(list, "three rows", 0.01, seen=lambda: 2)
    with pytest.raises(AssertionError, match=r"the last answer: False; last seen: \.\.\. x+$") as caught:
        wait_until(lambda: False, "a short text", 0.01, seen=lambda: "x" * 100_000)
    assert len(str(caught.value)) < 2 * waiting.MAX_SEEN_CHARACTERS


def test_coroutines_wait_for_both_kinds_of_conditions() -> None:
    calls: list[int] = []

    async def three() -> bool:
        calls.append(1)
        return len(calls) >= 3

    async def body() -> None:
        await eventually(three, "three calls")
        await eventually(lambda: len(calls) == 3, "no call more")
        with pytest.raises(AssertionError, match=r"nothing; the last answer: None; last seen: \[1, 1, 1\]"):
            await eventually(lambda: None, "nothing", 0.01, seen=lambda: calls)

    asyncio.run(body())


def test_patience_is_a_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FACTOR", 2.5)
    assert patience(10) == 25.0


def test_processes_of_a_run_have_ports_of_their_own() -> None:
    shares = [set(ports_of(worker)) for worker in ("", *(f"gw{number}" for number in range(PORT_SHARES - 1)))]
    assert sum(len(share) for share in shares) == len(set().union(*shares)) == len(NEVER_HANDED_OUT)
    found = free_ports(100)
    assert len(set(found)) == 100
    assert any(set(found) <= share for share in shares)
