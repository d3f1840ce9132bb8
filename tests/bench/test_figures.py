"""Figures of a run are handed over, recorded and compared; the statistics are checked on fixed figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import main, part_of
from bench.client_report import MEASURES, OURS_ON_OURS, PYFLUSS_ON_APACHE
from bench.client_report import figures_of as client_figures
from bench.compare import PARTS, Ratio, compare, interval, markdown, parse, ratios, times_better, verdict
from bench.figures import Figure, Run, read_run
from bench.growth import TITLES, Costs
from bench.growth import figures_of as growth_figures
from bench.kv import KV_MEASURES
from bench.record import FIGURES, record
from bench.report import figures_of as server_figures
from bench.report import summary
from bench.spark_report import figures_of as spark_figures

RUN = Run(
    "server",
    {"rounds": 3, "flush": "always"},
    [
        Figure("append_rows", "append rows", 200.0, "k rows/s", {"Apache Fluss": 100.0}, 2.0),
        Figure("start", "start", 0.5, "s"),
    ],
)


def figures(rate: float, milliseconds: float, echo: float = 0.02) -> dict[str, Figure]:
    rows = [
        Figure("append_rows", "append rows", rate, "k rows/s"),
        Figure("lone", "one row", milliseconds, "ms"),
        Figure("echo", "bare echo", echo, "ms"),
    ]
    return {figure.row: figure for figure in rows}


def test_parts_and_their_arguments() -> None:
    assert part_of(["--rounds", "2"]) == ("server", ["--rounds", "2"])
    assert part_of(["--rounds", "2", "--kv", "--rows", "5"]) == ("kv", ["--rounds", "2", "--rows", "5"])
    options, rest = parse(["--rounds", "4", "--rows", "5", "--json", "x.json"])
    assert (options.rounds, options.json, rest) == (4, Path("x.json"), ["--rows", "5"])
    with pytest.raises(SystemExit):
        parse(["--rounds", "0"])
    with pytest.raises(SystemExit, match="--compare"):
        main(["--compare", "HEAD", "HEAD", "--record"])


def test_every_part_hands_over_rows_with_units_and_peers() -> None:
    medians = {"append_rows": 200_000.0, "start": 0.5}
    (append, start) = server_figures(summary(medians.get, {"append_rows": 100_000.0}.get))
    assert (append.value, append.unit, append.peers, append.ratio) == (200.0, "k rows/s", {"Apache Fluss": 100.0}, 2.0)
    assert (start.peers, start.ratio, start.is_rate) == ({}, None, False)

    pairs = {OURS_ON_OURS: {"polled": [1.0, 2.0, 9.0]}, PYFLUSS_ON_APACHE: {"polled": [100.0]}}
    (half, late) = client_figures(pairs)
    assert (half.row, half.value, half.ratio) == ("polled", 2.0, 50.0)
    assert (late.row, late.value, late.unit) == ("polled_p99", 9.0, "ms")
    for measures in (MEASURES, KV_MEASURES):
        assert all(measure.unit in measure.title for measure in measures)
        assert len({measure.row for measure in measures}) == len(measures)

    (read,) = spark_figures({"read_all": [700.0], "parquet_all": [1000.0]})
    assert (read.row, read.peers, read.ratio) == ("read_all", {"native Parquet": 1000.0}, 0.7)

    grown = growth_figures([Costs(1_000_000, dict.fromkeys(TITLES, 2.0))])
    assert {figure.unit for figure in grown} == {"µs", "ms", "s", "MB"}
    assert "insert, 1 M keys" in {figure.row for figure in grown}


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    RUN.write(tmp_path / "run.json", "some/src")
    assert read_run(tmp_path / "run.json") == (RUN, "some/src")


def test_recorded_lines_have_commit_and_machine_and_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "figures.jsonl"
    assert [record(RUN, path), record(RUN, path)] == [2, 2]
    kept = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["row"] for line in kept] == ["append_rows", "start"] * 2
    first = kept[0]
    assert (first["part"], first["value"], first["unit"]) == ("server", 200.0, "k rows/s")
    assert (first["peers"], first["ratio"]) == ({"Apache Fluss": 100.0}, 2.0)
    assert first["settings"] == {"rounds": 3, "flush": "always"}
    assert len(first["commit"]) == 40
    assert isinstance(first["dirty"], bool)
    assert {"processor", "cores", "memory_gb", "python", "system", "load"} == set(first["machine"])


def test_the_recorded_figures_of_the_repository_can_be_read() -> None:
    lines = FIGURES.read_text(encoding="utf-8").splitlines() if FIGURES.exists() else []
    for line in lines:
        assert {"part", "row", "value", "unit", "commit", "dirty", "date", "machine", "settings"} <= set(
            json.loads(line)
        )


def test_more_rows_and_less_time_are_both_better() -> None:
    before, after = figures(100.0, 2.0), figures(150.0, 1.0)
    assert times_better(before["append_rows"], after["append_rows"]) == 1.5
    assert times_better(before["lone"], after["lone"]) == 2.0
    assert times_better(before["lone"], Figure("lone", "", 0.0, "ms")) is None


def test_an_interval_holds_the_median_and_is_the_same_every_time() -> None:
    values = [0.9, 1.0, 1.1, 1.2, 1.0, 1.05, 0.97]
    low, high = interval(values)
    assert min(values) <= low <= 1.0 <= high <= max(values)
    assert interval(values) == (low, high)
    assert interval([1.3]) == (1.3, 1.3)


def test_rows_below_the_limit_are_marked_and_the_machine_is_not() -> None:
    slower = [(figures(100.0, 2.0, 0.01), figures(80.0 + turn, 2.0, 0.03)) for turn in range(6)]
    found = {row.row: row for row in ratios(slower)}
    assert found["append_rows"].is_below
    assert found["append_rows"].remark == "below 0.95"
    assert (found["lone"].ratio, found["lone"].is_below) == (1.0, False)
    assert (found["echo"].is_below, found["echo"].remark) == (False, "the machine")
    text = markdown(list(found.values()), "title", "a1", "b2")
    assert "| row | | unit | a1 | b2 | times better | 95 % interval | |" in text
    assert text.endswith("\nBelow 0.95: append_rows.")


def test_few_rounds_and_wide_intervals_are_no_certainty() -> None:
    few = ratios([(figures(100.0, 2.0), figures(50.0, 2.0))])
    assert [row.remark for row in few if row.row == "append_rows"] == ["perhaps below 0.95"]
    wide = Ratio("r", "title", "ms", 1.0, 1.1, 0.9, 0.7, 1.2, 6)
    assert (wide.is_below, wide.is_certain) == (True, False)
    assert verdict([wide]) == "Perhaps below 0.95, more rounds are needed to decide: r."
    assert verdict([]) == "No row is below 0.95."


def test_rows_that_only_one_commit_has_are_left_out() -> None:
    before, after = figures(1.0, 1.0), figures(1.0, 1.0)
    del after["lone"]
    assert [row.row for row in ratios([(before, after)])] == ["append_rows", "echo"]


@pytest.mark.soak
@pytest.mark.parametrize("part", ["server", "client", "kv"])
def test_a_small_comparison_of_a_commit_with_itself(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {
        "server": ["--arrow-rows", "3000", "--dict-rows", "3000", "--lone-rows", "1", "--settle-seconds", "0"],
        "client": ["--arrow-rows", "3000", "--dict-rows", "3000", "--lone-rows", "1", "--scan-seconds", "0"],
        "kv": ["--rows", "1000", "--kv-arrow-rows", "1000", "--lookups", "1", "--seconds", "0", "--tasks", "2", "4"],
    }
    assert set(small) <= set(PARTS)
    files = ["--json", str(tmp_path / "compared.json"), "--warm-megabytes", "1", "--directory", str(tmp_path)]
    rows = compare(part, "HEAD", "HEAD", ["--rounds", "2", *small[part], *files])
    assert {"echo"} < {row.row for row in rows}
    assert all(row.rounds == 2 and row.low <= row.ratio <= row.high for row in rows)
    assert "| times better | 95 % interval |" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "compared.json").read_text())["rounds"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["compared.json"]
