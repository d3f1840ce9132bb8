"""`python -m bench --plot [FILE]`: draws the picture of the README from recorded figures.

For each part of the benchmarks, and each peer, the newest run in the file counts. The picture has the rows of
`HEADLINES`, and every other row of those runs that is slower than its peer: only faster rows are left out. Bars begin
at "as fast as the peer" and grow with the logarithm, to the right if we are faster, to the left if we are slower.
Machine, date and commit are below.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.client_report import PYFLUSS_ON_APACHE
from bench.record import CHECKOUT, FIGURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

PICTURES = CHECKOUT / "docs" / "pictures"
STYLES = Path(__file__).parent
THEMES = {"light": ["plots.mplstyle"], "dark": ["plots.mplstyle", "plots-dark.mplstyle"]}
NAME = "speed"
TIMES = "\N{MULTIPLICATION SIGN}"
APACHE, APACHE_SERVER, KAFKA, REDIS = PYFLUSS_ON_APACHE, "Apache Fluss", "Kafka", "Redis"
# A ratio below this counts as slower; runs differ by some hundredths.
EVEN = 0.98
NOT_COMPARED = ("echo",)

# Part and peer, row, label. The heading of a group has its name and the guarantees of both sides.
HEADLINES: dict[tuple[str, str], dict[str, str]] = {
    ("client", APACHE): {
        "append_arrow": "append Arrow data, 16 columns",
        "append_rows": "append rows",
        "scan_all": "scan all 16 columns",
        "acknowledged": "one row acknowledged",
    },
    ("kv", APACHE): {"upsert_rows": "upsert rows, new keys", "lookup": "one lookup"},
    ("server", APACHE_SERVER): {
        "scan_all_zstd": "scan all 16 columns",
        "start": "start until the first table is there",
        "memory_idle": "memory, idle",
    },
    ("peers", KAFKA): {
        "append_rows_synced": "append rows, both sync first",
        "append_rows_unsynced": "append rows, neither syncs",
        "acknowledged_synced": "one row acknowledged, both sync first",
        "polled_unsynced": "one row until it is read, neither syncs",
    },
    ("peers", REDIS): {
        "upsert_rows_synced": "upsert rows, both sync first",
        "lookup": "one lookup",
        "lookup_many": "lookup of 50,000 keys at once",
    },
}
GROUPS = {
    APACHE: "pyfluss 1.0 on Apache Fluss 0.9.1, which does not sync; ours does",
    APACHE_SERVER: "Apache Fluss 0.9.1, the servers alone: both driven by pyfluss",
    KAFKA: "Kafka 4.1; synced: flush.messages=1",
    REDIS: "Redis 7, append-only file; synced: appendfsync always",
}
# Above this load per core, the machine is labelled as busy.
BUSY_LOAD_PER_CORE = 1.5


class NoFiguresError(SystemExit):
    """There is nothing to draw; the message has the commands to run."""


@dataclass(frozen=True)
class Bar:
    """One row of the picture."""

    words: str
    ours: float
    theirs: float
    unit: str

    @property
    def ratio(self) -> float:
        """How many times better ours is."""
        return self.ours / self.theirs if self.unit.endswith("/s") else self.theirs / self.ours


@dataclass(frozen=True)
class Group:
    """All rows of one peer, the best on top."""

    peer: str
    bars: Sequence[Bar]


Line = Mapping[str, Any]


def read(path: Path) -> list[Line]:
    """The lines of the file of figures."""
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except FileNotFoundError:
        return []


def newest(lines: Sequence[Line], part: str, peer: str) -> list[Line]:
    """The lines of the newest run of a part in which this peer took part."""
    found = [line for line in lines if line["part"] == part and peer in line["peers"] and line["ratio"] is not None]
    date = max((line["date"] for line in found), default=None)
    return [line for line in found if line["date"] == date and line["row"] not in NOT_COMPARED]


def groups(lines: Sequence[Line]) -> list[Group]:
    """The groups of the picture; `NoFiguresError` if no figures for it are recorded."""
    bars: dict[str, list[Bar]] = {peer: [] for peer in GROUPS}
    for (part, peer), words in HEADLINES.items():
        for line in newest(lines, part, peer):
            bar = Bar(words.get(line["row"], _title(line)), line["value"], line["peers"][peer], line["unit"])
            if line["row"] in words or bar.ratio < EVEN:
                bars[peer].append(bar)
    made = [Group(peer, sorted(found, key=lambda bar: -bar.ratio)) for peer, found in bars.items() if found]
    if not made:
        parts = dict.fromkeys(f"python3 dev.py {_command(part)} --record" for part, _ in HEADLINES)
        said = "bench: no figures for the plot are recorded. Record some first: "
        raise NoFiguresError(said + ", ".join(parts))
    return made


def sources(lines: Sequence[Line]) -> list[str]:
    """Machine, day and commit of the shown runs, and their parts."""
    parts: dict[str, list[str]] = {}
    for part, peer in HEADLINES:
        for line in newest(lines, part, peer)[:1]:
            said = parts.setdefault(_source(line), [])
            if part not in said:
                said.append(part)
    return [f"{source} ({', '.join(map(_command, said))})" for source, said in parts.items()]


def _command(part: str) -> str:
    return "bench" if part == "server" else f"bench --{part}"


def _title(line: Line) -> str:
    """The label of rows that have none in `HEADLINES`."""
    return str(line.get("title", line["row"].replace("_", " "))).replace(f" ({line['unit']})", "")


def _source(line: Line) -> str:
    machine = line["machine"]
    commit = line["commit"][:9] + (" with changes" if line["dirty"] else "")
    processor = f"{machine['processor']}, " if machine["processor"] else ""
    load = machine["load"] or 0
    busy = f", busy (load {load:.0f})" if load > BUSY_LOAD_PER_CORE * machine["cores"] else ""
    return f"{processor}{machine['cores']} cores{busy}; {line['date'][:10]}, commit {commit}"


def amount(value: float, unit: str) -> str:
    """Format a figure with its unit, as short as possible."""
    if unit.startswith("k "):
        value, unit = (value / 1000, "M" + unit[1:]) if value >= 1000 else (value, unit)
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 else 3
    return f"{value:,.{digits}f} {unit}"


def draw(made: Sequence[Group], sources: Sequence[str]) -> Picture:
    """Draw one bar per row, the groups below each other and `sources` below them, in the active style."""
    from matplotlib import pyplot

    rows = sum(len(group.bars) + 2 for group in made)
    picture, axes = pyplot.subplots(figsize=(7.5, 0.7 + 0.27 * rows))
    place = 0.0
    ticks: dict[float, str] = {}
    for group in made:
        place -= 1
        top = place - 0.5
        axes.annotate(
            GROUPS[group.peer], (0, place), (-4, 0), xycoords=("axes fraction", "data"),
            textcoords="offset points", va="center", ha="left", weight=600, size=9.5,
        )  # fmt: skip
        for bar in group.bars:
            place -= 1
            ticks[place] = bar.words
            _draw_bar(axes, place, bar)
        axes.vlines(0, place - 0.5, top, color=pyplot.rcParams["text.color"], linewidth=1)
        place -= 0.5
    _settle(axes, made, ticks, place, sources)
    return picture


def _draw_bar(axes: Axes, place: float, bar: Bar) -> None:
    from matplotlib import pyplot

    better, worse, *_ = pyplot.rcParams["axes.prop_cycle"].by_key()["color"]
    dim = pyplot.rcParams["axes.labelcolor"]
    is_behind = bar.ratio < 1
    axes.barh(place, math.log10(bar.ratio), height=0.58, color=worse if is_behind else better)
    digits = 0 if bar.ratio >= 20 else 1 if bar.ratio >= 3 else 2
    number = axes.annotate(
        f"{bar.ratio:.{digits}f}{TIMES}", (max(math.log10(bar.ratio), 0), place), (6, 0),
        textcoords="offset points", va="center", weight=600, size=9,
    )  # fmt: skip
    words = f"{amount(bar.ours, bar.unit)}, peer {amount(bar.theirs, bar.unit)}" + (": slower" if is_behind else "")
    axes.annotate(words, (1, 0.5), (6, 0), xycoords=number, textcoords="offset points", va="center", size=8, color=dim)


def _settle(
    axes: Axes, made: Sequence[Group], ticks: Mapping[float, str], bottom: float, sources: Sequence[str]
) -> None:
    """Draw the line at 1, the title, the labels of rows, and the sources of the figures."""
    from matplotlib import pyplot

    dim = pyplot.rcParams["axes.labelcolor"]
    logarithms = [math.log10(bar.ratio) for group in made for bar in group.bars]
    low, high = min(0.0, *logarithms), max(0.3, *logarithms)
    axes.set_xlim(low - 0.02, high + 0.62 * (high - low))
    axes.set_ylim(bottom, 0.2)
    axes.set_yticks(list(ticks), list(ticks.values()), size=9)
    axes.set_xticks([])
    axes.annotate(
        "How many times faster, or smaller, than the peer", (0, 1), (-4, 14),
        xycoords="axes fraction", textcoords="offset points", weight=600, size=12,
    )  # fmt: skip
    axes.annotate(
        f"1{TIMES} = as fast as the peer; the scale is logarithmic", (0, 1), (-4, 2),
        xycoords="axes fraction", textcoords="offset points", size=8.5, color=dim,
    )  # fmt: skip
    axes.annotate(
        "\n".join(sources), (0, 0), (-4, -4), xycoords="axes fraction", textcoords="offset points",
        va="top", ha="left", size=7.5, color=dim, linespacing=1.5,
    )  # fmt: skip


def main(arguments: list[str]) -> list[Path]:
    """Draw both themes; return the files."""
    parser = argparse.ArgumentParser(prog="python -m bench --plot", description=__doc__)
    parser.add_argument("figures", nargs="?", type=Path, default=FIGURES, help="(default: bench/figures.jsonl)")
    parser.add_argument("--to", type=Path, default=PICTURES, help="folder of the pictures (default: docs/pictures)")
    options = parser.parse_args(arguments)
    lines = read(options.figures)
    made = groups(lines)
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # the missing fonts do not matter here
    files = []
    for theme, styles in THEMES.items():
        with pyplot.style.context([str(STYLES / style) for style in styles]):
            picture = draw(made, sources(lines))
            files.append(options.to / f"{NAME}-{theme}.svg")
            picture.savefig(files[-1], metadata={"Date": None})
            pyplot.close(picture)
            print(files[-1])
    return files
