"""The benchmark of tiering and union reads works; its figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.lake import MEASURES, key_rows, wide_rows
from bench.spark_report import markdown


def test_goals_are_ratios_to_pyarrow() -> None:
    rounds = {
        "tier_local": [90.0, 110.0, 100.0],
        "parquet_write": [80.0],
        "union_log": [200.0],
        "parquet_read": [500.0],
    }
    text = markdown(rounds, "title", MEASURES)
    assert "| 100 | pyarrow writes Parquet: 80 | 1.25 | at least 1 of it: reached |" in text
    assert "| 200 | pyarrow reads Parquet: 500 | 0.40 | at least 0.5 of it: missed |" in text
    assert "Spark" not in text, "what was not measured has no line"


def test_rows_are_those_of_the_other_benchmarks() -> None:
    wide = wide_rows(3)
    assert wide.num_columns == 16
    assert {len(text) for name in ("s0", "s7") for text in wide[name].to_pylist()} == {102}
    assert key_rows(5, 2).column_names == ["id", "name", "score", "flag", "count"]


def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--rounds", "1", "--rows", "2000", "--key-rows", "2000", "--engines", "local"]
    files = ["--json", str(tmp_path / "figures.json"), "--directory", str(tmp_path), "--warm-megabytes", "1"]
    main(["--lake", *small, *files])
    assert "| union read of a log table, 16 columns |" in capsys.readouterr().out
    rounds = json.loads((tmp_path / "figures.json").read_text())["rounds"]
    assert {name: len(figures) for name, figures in rounds.items()} == dict.fromkeys(
        (
            *("tier_local", "parquet_write", "tier_keys", "tier_changes", "parquet_write_keys"),
            *("union_log", "parquet_read", "union_keys", "parquet_read_keys", "lake_log"),
        ),
        1,
    )
