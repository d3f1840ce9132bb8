"""`dev.py test` around pytest: the last green commit, the table of times, what a failure prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT
from tools import series, testing
from tools.waiting import patience

RUN_SECONDS = patience(120)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit."""
    monkeypatch.setattr(testing, "ROOT", tmp_path)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "tester")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "tester@example.org")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path, "one")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, text: str) -> str:
    (folder / "file").write_text(text)
    git(folder, "add", "file")
    git(folder, "commit", "--quiet", "-m", text)
    return git(folder, "rev-parse", "HEAD")


def test_a_green_gate_on_a_clean_tree_is_noted(checkout: Path) -> None:
    assert testing.since_last_green() == "the gate was never green in this checkout"
    testing.note_green(testing.clean_commit())
    green = git(checkout, "rev-parse", "HEAD")
    assert (checkout / ".git" / "last-green").read_text() == f"{green}\n"
    assert testing.since_last_green() == f"the gate was last green at {green[:12]}, 0 commits ago"
    commit(checkout, "two")
    (checkout / "file").write_text("not committed")
    testing.note_green(testing.clean_commit())
    assert (checkout / ".git" / "last-green").read_text() == f"{green}\n", "what was tested is no commit"
    said = f"the gate was last green at {green[:12]}, 1 commits ago, and there are changes that are not committed"
    assert testing.since_last_green() == said


def test_a_commit_that_is_gone_and_a_folder_without_git(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / ".git" / "last-green").write_text("0" * 40)
    assert testing.since_last_green().endswith("which is not in this history")
    monkeypatch.setattr(testing, "ROOT", tmp_path_factory.mktemp("plain"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path_factory.getbasetemp()))
    assert testing.since_last_green().startswith("not a git checkout")
    testing.note_green(testing.clean_commit())


def test_a_failure_prints_how_to_repeat_it_and_what_the_server_said(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "unit"
    folder.mkdir(parents=True)
    (tmp_path / "server.log").write_text("the last words of the server\n")
    (folder / "test_some.py").write_text(
        "from pathlib import Path\n"
        "from tools.servers.server_logs import watch_log\n"
        f"def test_some():\n    watch_log(Path({str(tmp_path / 'server.log')!r}))\n    assert False\n"
    )
    plugins = [f"-ptests.support.runner.{name}" for name in ("lanes", "failure_notes", "durations")]
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, *plugins, "-p", "no:cacheprovider", "--times", str(folder)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "FLUSS_TEST_SEED": "4711"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_SECONDS,
    )
    for said in ("FLUSS_TEST_SEED=4711", "pyarrow 2", "commit ", "the last words of the server", "| tests/unit |"):
        assert said in done.stdout, said


def test_a_series_counts_what_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = tmp_path / "test_some.py"
    test.write_text("import pytest\n\n\n@pytest.mark.all\ndef test_some():\n    assert False\n")
    assert series.main(["--runs", "2", "--busy", "1", "--only", f"{test}", "--keep", str(tmp_path / "logs")]) == 1
    said = capsys.readouterr().out
    assert "0 of 2 green" in said
    assert "test_some.py::test_some | 2 |" in said
