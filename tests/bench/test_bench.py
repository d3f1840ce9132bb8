"""The benchmark command works; its figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.report import markdown, summary
from bench.run import main
from tools.peers.cache import PeerMissingError
from tools.peers.pyfluss_environment import pyfluss_python

OURS = {"append_rows": 200_000.0, "start": 0.5, "memory_idle": 150.0, "scan_all_zstd": 90_000.0}
THEIRS = {"append_rows": 100_000.0, "start": 8.0, "memory_idle": 200.0, "scan_all_zstd": 100_000.0}


def test_ratios_and_goals() -> None:
    lines = {line.workload: line for line in summary(OURS.get, THEIRS.get)}
    assert lines["append_rows"].ratio == 2.0
    assert lines["append_rows"].ours == 200.0
    assert lines["append_rows"].reached is True
    assert lines["scan_all_zstd"].reached is False
    assert lines["start"].reached is True
    assert lines["memory_idle"].reached is False
    assert lines["scan_two_zstd"].ratio is None


def test_a_table_without_the_peer() -> None:
    text = markdown(summary(OURS.get, lambda _: None), "title")
    assert text.startswith("title\n")
    assert "| append rows, dicts of 5 columns | k rows/s | 200 | - | - | at least 1 |  |" in text


@pytest.mark.soak
def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        pyfluss_python()
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    small = ["--rounds", "1", "--starts", "1", "--arrow-rows", "4000", "--dict-rows", "10000", "--lone-rows", "1"]
    files = ["--json", str(tmp_path / "figures.json"), "--markdown", str(tmp_path / "figures.md")]
    main(
        [
            *small,
            *files,
            "--without-apache",
            "--warm-megabytes",
            "1",
            "--settle-seconds",
            "0",
            "--directory",
            str(tmp_path),
        ]
    )
    assert "| append rows, dicts of 5 columns |" in capsys.readouterr().out
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert all(figures["rounds"]["fluss"][name] for name in ("append_arrow_zstd", "scan_two_plain", "start", "echo"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures.json", "figures.md"]
