"""Every test is in a lane, and the gate leaves out only what is named here."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dev
from tests.support.runner.lanes import FOLDERS, LANES
from tests.tidy.repository import ROOT, nodes
from tools.testing import FAST_FOLDERS, MARKS

# Modules of which the gate runs nothing, and why. What is left out test by test stands beside the test.
ONLY_IN_ALL = {
    "tests/spark/sessions/test_cluster.py": "a Spark cluster of several processes",
    "tests/spark/write/test_full_disk.py": "what a full disk refuses is in tests/recovery too, Spark only shows it",
    "tests/spark/sessions/test_connect.py": "a Connect server is another Java machine",
    "tests/spark/stream/test_stream_kill.py": "test_kill_rounds.py kills the same server under the same kind of query",
    "tests/spark/lake/test_tier_kill.py": "starts Spark once per death; tests/recovery kills the same service",
    "tests/spark/stream/test_stream_leaks.py": "a thousand micro-batches, and no behaviour of its own",
    "tests/spark/test_bench.py": "a benchmark that is only run",
    "tests/bench/test_amplification.py": "takes minutes; the limits that it looks for have tests of their own",
    "tests/docs/test_examples.py": "the demo and the page of the README are made of the same parts",
    "tests/lake/tables/test_catalog.py": "a race that is rare, tried often",
    "tests/compat/test_pyfluss_suite.py": "its polls that expect nothing take a minute",
    "tests/compat/test_rocksdb_files.py": "needs the jars of Apache Fluss",
    "tests/integration/test_kv_snapshot_peer.py": "needs the jars of Apache Fluss",
    "tests/integration/test_three_servers.py": "five Java machines of Apache Fluss, and kills",
}


def test_every_folder_of_tests_is_in_a_lane() -> None:
    folders = {path.parent.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("test_*.py")}
    assert folders == set(FOLDERS)


def test_the_lanes_are_declared_and_each_runs_with_those_before_it() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'^    "(\w+): ', project, re.MULTILINE) == list(LANES)
    assert list(MARKS) == list(LANES[:-1])
    assert [mark.split(" or ") for mark in MARKS.values()] == [list(LANES[: count + 1]) for count in range(len(MARKS))]


def test_the_fast_lane_looks_into_all_folders_that_have_something_for_it() -> None:
    folders = {f"tests/{folder}" for folder, lane in FOLDERS.items() if lane == "fast"} | {"tests/contract"}
    marked = [
        path.relative_to(ROOT)
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"^ *(@|pytestmark = .*\b)pytest\.mark\.fast\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert sorted(FAST_FOLDERS) == sorted(folders | {"/".join(path.parts[:2]) for path in marked})


def test_every_test_of_this_run_has_one_lane(request: pytest.FixtureRequest) -> None:
    for item in request.session.items:
        assert len({mark.name for mark in item.iter_markers() if mark.name in LANES}) == 1, item.nodeid


def test_the_gate_leaves_out_no_module_but_these() -> None:
    left_out = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py") if is_left_out(path)]
    assert sorted(left_out) == sorted(ONLY_IN_ALL)


def test_a_soak_runs_every_test_that_has_its_mark() -> None:
    marked = [
        path.relative_to(ROOT)
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"^ *(@|pytestmark = .*\b)pytest\.mark\.soak\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    soaked = [Path(each) for each in dev.SOAKED_FOLDERS]
    assert [path for path in marked if not {path, *path.parents} & set(soaked)] == []
    assert [path for path in soaked if not (ROOT / path).exists()] == []


def is_left_out(path: Path) -> bool:
    """Whether the module, or each of its tests by itself, has the mark of a later lane."""
    if re.search(r"^pytestmark = .*\bmark\.(all|soak)\b", path.read_text(encoding="utf-8"), re.MULTILINE):
        return True
    tests = [node for node in nodes(path) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return bool(tests) and all(
        any(ast.unparse(mark) in ("pytest.mark.all", "pytest.mark.soak") for mark in test.decorator_list)
        for test in tests
    )


@pytest.mark.parametrize(
    ("folder", "mark", "said"),
    [
        ("unit", "", "1 test collected"),
        ("unit", "pytestmark = pytest.mark.gate", "in two lanes"),
        ("elsewhere", "", "1 test collected"),  # on Apache Fluss, so in `all` wherever it is
    ],
)
def test_a_test_on_apache_fluss_is_in_all_and_nowhere_else(tmp_path: Path, folder: str, mark: str, said: str) -> None:
    assert said in collected(tmp_path, folder, f"{mark}\n@pytest.mark.parametrize('on', ['apache'])", "on")


def test_a_test_in_no_lane_stops_the_run(tmp_path: Path) -> None:
    assert "in no lane" in collected(tmp_path, "elsewhere", "", "")


def collected(root: Path, folder: str, above: str, parameters: str) -> str:
    """What pytest says about a test in that folder."""
    place = root / "tests" / folder
    place.mkdir(parents=True)
    (place / "test_some.py").write_text(f"import pytest\n{above}\ndef test_some({parameters}): ...\n")
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(root)]
    command += ["-p", "tests.support.runner.lanes", "-p", "no:cacheprovider", "-m", "", "--collect-only", str(place)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.stdout
