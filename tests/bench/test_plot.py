"""The picture of the README: drawn from recorded figures, with what is behind, where and when it was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.__main__ import main
from bench.client_report import PYFLUSS_ON_APACHE
from bench.figures import Figure, Run
from bench.plot import TIMES, Bar, amount, groups, newest, read, sources
from bench.record import FIGURES, lines

MACHINE = {"processor": "Some Processor", "cores": 2, "load": 0.4}


def recorded(
    date: str,
    *figures: tuple[str, float, float, str],
    part: str = "client",
    peer: str = PYFLUSS_ON_APACHE,
    **where: Any,
) -> list[str]:
    """Lines of the file: rows with both figures and their unit."""
    made = [
        Figure(row, f"{row} ({unit})", ours, unit, {peer: theirs}, ours / theirs) for row, ours, theirs, unit in figures
    ]
    said = {"commit": "0123456789abcdef", "dirty": False, "date": date, "machine": MACHINE, **where}
    return lines(Run(part, {}, made), said)


def parsed(*found: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for one in found for line in one]


def test_headlines_and_all_that_is_behind() -> None:
    run = recorded(
        "2026-01-01",
        ("scan_all", 200.0, 100.0, "k rows/s"),
        ("acknowledged", 1.0, 100.0, "ms"),
        ("append_arrow_plain", 90.0, 100.0, "k rows/s"),
        ("scan_two", 300.0, 100.0, "k rows/s"),  # ahead, and no headline
        ("polled_p99", 300.0, 100.0, "ms"),  # behind
        ("echo", 1.0, 9.0, "ms"),
    )
    (group,) = groups(parsed(run))
    assert [(bar.words, round(bar.ratio, 2)) for bar in group.bars] == [
        ("one row acknowledged", 100.0),
        ("scan all 16 columns", 2.0),
        ("append_arrow_plain", 0.9),
        ("polled_p99", 0.33),
    ]


def test_the_newest_run_with_a_peer_counts() -> None:
    old = recorded("2026-01-01", ("scan_all", 1.0, 1.0, "k rows/s"))
    new = recorded("2026-01-02", ("scan_all", 3.0, 1.0, "k rows/s"))
    alone = [json.dumps({**line, "date": "2026-01-03", "peers": {}, "ratio": None}) for line in parsed(new)]
    assert [line["value"] for line in newest(parsed(new, old, alone), "client", PYFLUSS_ON_APACHE)] == [3.0]


def test_machine_day_and_commit_are_said_once_for_parts_of_one_run() -> None:
    client = recorded("2026-01-02T10:00", ("scan_all", 3.0, 1.0, "k rows/s"))
    keys = recorded("2026-01-02T11:00", ("lookup", 1.0, 2.0, "ms"), part="kv")
    kafka = recorded(
        "2026-01-03", ("append_rows_synced", 2.0, 1.0, "k rows/s"),
        part="peers", peer="Kafka", dirty=True, machine={**MACHINE, "processor": None, "load": 7.2},
    )  # fmt: skip
    assert sources(parsed(client, keys, kafka)) == [
        "Some Processor, 2 cores; 2026-01-02, commit 012345678 (bench --client, bench --kv)",
        "2 cores, busy (load 7); 2026-01-03, commit 012345678 with changes (bench --peers)",
    ]


def test_both_pictures_have_every_row_as_text_and_are_the_same_every_time(tmp_path: Path) -> None:
    path = tmp_path / "figures.jsonl"
    found = recorded("2026-01-02", ("scan_all", 3000.0, 1000.0, "k rows/s"), ("append_rows", 50.0, 100.0, "k rows/s"))
    path.write_text("\n".join(found), encoding="utf-8")
    main(["--plot", str(path), "--to", str(tmp_path)])
    first = (tmp_path / "speed-light.svg").read_bytes()
    main(["--plot", str(path), "--to", str(tmp_path)])
    assert (tmp_path / "speed-light.svg").read_bytes() == first
    for theme, behind in (("light", "#a85f00"), ("dark", "#dba24a")):
        text = (tmp_path / f"speed-{theme}.svg").read_text(encoding="utf-8")
        words = "\n".join(element.text or "" for element in ElementTree.fromstring(text).iter())
        for said in (
            "scan all 16 columns",
            f"3.0{TIMES}",
            "3.00 M rows/s, peer 1.00 M rows/s",
            f"0.50{TIMES}",
            "commit 012345678",
        ):
            assert said in words
        assert "50.0 k rows/s, peer 100 k rows/s: slower" in words
        assert text.count(behind) == 1, "what is slower has a colour of its own"


@pytest.mark.parametrize("text", [None, "", json.dumps({"part": "growth", "row": "x", "peers": {}, "ratio": None})])
def test_without_figures_it_says_what_to_record(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "figures.jsonl"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(
        SystemExit, match=r"no figures for the plot are recorded.* python3 dev.py bench --client --record, "
    ):
        main(["--plot", str(path), "--to", str(tmp_path)])
    assert not list(tmp_path.glob("*.svg"))


def test_amounts_and_ratios() -> None:
    assert [amount(1507.0, "k rows/s"), amount(42.25, "k rows/s"), amount(0.984, "ms"), amount(0.0525, "ms")] == [
        "1.51 M rows/s",
        "42.2 k rows/s",
        "0.98 ms",
        "0.052 ms",
    ]
    assert (Bar("", 2.0, 1.0, "k rows/s").ratio, Bar("", 2.0, 1.0, "ms").ratio) == (2.0, 0.5)


def texts(picture: Path) -> list[str]:
    """All that is written on a picture."""
    tag = "{http://www.w3.org/2000/svg}text"
    return [element.text or "" for element in ElementTree.fromstring(picture.read_text(encoding="utf-8")).iter(tag)]


def test_the_pictures_of_the_repository_are_drawn_from_its_figures(tmp_path: Path) -> None:
    main(["--plot", "--to", str(tmp_path)])
    pictures = FIGURES.parents[1] / "docs" / "pictures"
    for name in ("speed-light.svg", "speed-dark.svg"):
        drawn = texts(tmp_path / name)
        assert set(sources(read(FIGURES))) < set(drawn)
        assert texts(pictures / name) == drawn, "python3 dev.py bench --plot"
