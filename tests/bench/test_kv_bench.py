"""The benchmarks of primary-key tables work; their figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.client_report import OURS_ON_OURS, PYFLUSS_ON_APACHE, PYFLUSS_ON_OURS, markdown
from bench.growth import TITLES, Costs
from bench.growth import markdown as growth_markdown
from bench.kv import KV_MEASURES
from tools.peers.cache import PeerMissingError
from tools.peers.pyfluss_environment import pyfluss_python


def test_figures_are_compared_with_what_the_peer_does_instead() -> None:
    figures = {
        OURS_ON_OURS: {
            "upsert_arrow": [600_000.0],
            "many_tasks": [10_000.0],
            "lookup_many": [200_000.0],
            "lookup": [0.6],
        },
        PYFLUSS_ON_APACHE: {"upsert_rows": [100_000.0], "many_lookupers": [5_000.0], "lookup": [102.0]},
    }
    text = markdown(figures, "title", KV_MEASURES)
    assert "against upsert rows | 600 | - | - | - | 6 | - | - | 5, reached |" in text
    assert "against 128 lookupers | 10 | - | - | - | 2 | - | - | 3, missed |" in text
    assert "(k keys/s) | 200 | - | - | - | 40 | - | - | at least 100, reached |" in text
    assert "p50 (ms) | 0.6 | - | - | 102 | 170 | - | - | at most 0.5, missed |" in text


def test_growth_is_the_last_figure_over_the_first() -> None:
    small, large = Costs(1_000_000, dict.fromkeys(TITLES, 2.0)), Costs(4_000_000, dict.fromkeys(TITLES, 5.0))
    text = growth_markdown([small, large], "title")
    assert "| | 1 M keys | 4 M keys | growth | goal |" in text
    assert "| upsert of a new key (µs) | 2 | 5 | 2.50 | below 2, missed |" in text
    assert "| highest own memory of the server so far (MB) | 2 | 5 | 2.50 | below 700 MB, reached |" in text


def test_a_small_run_of_primary_key_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        pyfluss_python()
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    small = ["--rounds", "1", "--rows", "2000", "--kv-arrow-rows", "3000", "--lookups", "1", "--seconds", "0"]
    few = ["--tasks", "2", "4", "--lookupers", "2"]
    files = ["--json", str(tmp_path / "figures.json"), "--markdown", str(tmp_path / "figures.md")]
    rest = ["--without-apache", "--warm-megabytes", "1", "--directory", str(tmp_path)]
    main(["--kv", *small, *few, *files, *rest])
    assert "| poll the changelog (k records/s) |" in capsys.readouterr().out
    rounds = json.loads((tmp_path / "figures.json").read_text())["rounds"]
    for pair in (OURS_ON_OURS, PYFLUSS_ON_OURS):
        assert all(len(rounds[pair][step]) == 1 for step in ("update_rows", "many_lookupers", "scan_table"))
        assert len(rounds[pair]["lookup"]) == 1
    assert len(rounds[OURS_ON_OURS]["lookup_many"]) == 1
    assert "upsert_arrow" not in rounds[PYFLUSS_ON_OURS]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures.json", "figures.md"]


@pytest.mark.all
def test_a_small_run_of_growth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--sizes", "3000", "6000", "--update-rows", "1000", "--replayed-rows", "1000", "--seconds", "0"]
    main(["--growth", *small, "--directory", str(tmp_path)])
    text = capsys.readouterr().out
    assert "| | 0.003 M keys | 0.006 M keys | growth | goal |" in text
    assert "| kill -9, start, first row found (s) |" in text
    assert not list(tmp_path.iterdir())
