"""The benchmarks of the client and of memory work; their figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.client_report import OURS_ON_OURS, PYFLUSS_ON_APACHE, PYFLUSS_ON_OURS, markdown, percentile
from tools.peers.cache import PeerMissingError
from tools.peers.pyfluss_environment import pyfluss_python


def test_rates_and_times_become_times_faster() -> None:
    figures = {
        OURS_ON_OURS: {"append_rows": [900_000.0, 1_000_000.0, 1_100_000.0], "acknowledged": [1.0, 2.0, 9.0]},
        PYFLUSS_ON_APACHE: {"append_rows": [500_000.0], "acknowledged": [90.0]},
    }
    text = markdown(figures, "title")
    assert "| append rows, dicts of 5 columns (k rows/s) | 1000 | - | - | 500 | 2 | - | - | 1, reached |" in text
    assert "| one row acknowledged, p50 (ms) | 2 | - | - | 90 | 45 | - | - | 50, missed |" in text
    assert "| one row acknowledged, p99 (ms) | 9 | - | - | 90 | 10 | - | - |  |" in text
    assert "scan all" not in text, "what was not measured has no line"


def test_percentiles() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([7.0], 0.99)) == (50.0, 99.0, 7.0)


@pytest.mark.all
def test_a_small_run_of_both_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        pyfluss_python()
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    small = ["--rounds", "1", "--arrow-rows", "4000", "--dict-rows", "10000", "--lone-rows", "2", "--scan-seconds", "0"]
    files = ["--json", str(tmp_path / "figures.json"), "--markdown", str(tmp_path / "figures.md")]
    rest = ["--without-apache", "--warm-megabytes", "1", "--directory", str(tmp_path)]
    main(["--client", *small, *files, *rest])
    assert "| poll records, 5 columns (k rows/s) |" in capsys.readouterr().out
    rounds = json.loads((tmp_path / "figures.json").read_text())["rounds"]
    for pair in (OURS_ON_OURS, PYFLUSS_ON_OURS):
        assert len(rounds[pair]["scan_two_plain"]) == 1
        assert len(rounds[pair]["polled"]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures.json", "figures.md"]


@pytest.mark.all
def test_a_small_run_of_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--memory", "--gigabytes", "0.02", "--directory", str(tmp_path)])
    text = capsys.readouterr().out
    assert "| append 0.0 GB (0.0 M rows) |" in text
    assert "| scan 2 of 16 columns |" in text
    assert not list(tmp_path.iterdir())
