"""The Spark benchmark works; its figures are not checked. It shares the session of the other tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.spark import parse, run
from bench.spark_report import MEASURES


@pytest.mark.soak
def test_a_small_run(spark: SparkSession, tmp_path: Path) -> None:
    small = ["--rounds", "0", "--rows", "2000", "--key-rows", "2000", "--times", "1", "--tiny-batches", "2"]
    files = ["--json", str(tmp_path / "figures.json"), "--markdown", str(tmp_path / "figures.md")]
    text, measured = run(parse([*small, *files, "--warm-megabytes", "1", "--directory", str(tmp_path)]), lambda: spark)
    for measure in MEASURES:
        assert f"| {measure.title} | {measure.unit} |" in text
    rounds = json.loads((tmp_path / "figures.json").read_text())["rounds"]
    assert {name for measure in MEASURES for name in (measure.name, measure.floor) if name} == set(rounds)
    assert [figure.row for figure in measured.figures] == [measure.name for measure in MEASURES]
    assert (tmp_path / "figures.md").read_text() == text + "\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures.json", "figures.md"]
