"""Keeps the figures of a run in the repository: one JSON object per line, with row, commit and machine.

Lines are only appended. Figures of different machines and days are not comparable; use `bench.compare` for that.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import psutil

from bench.figures import Run

CHECKOUT = Path(__file__).resolve().parents[1]
FIGURES = CHECKOUT / "bench" / "figures.jsonl"


def git(*arguments: str) -> str:
    """The output of a git command in this checkout."""
    done = subprocess.run(["git", *arguments], cwd=CHECKOUT, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench: git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def processor() -> str:
    """The marketing name of the processor."""
    listed = Path("/proc/cpuinfo")
    if listed.exists():
        for line in listed.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def machine() -> dict[str, object]:
    """The facts besides the code on which figures depend."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "python": platform.python_version(),
        "system": platform.platform(),
        "load": round(os.getloadavg()[0], 2),
    }


def code() -> dict[str, object]:
    """The commit, and whether files differ from it. The file of figures is ignored."""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{FIGURES.relative_to(CHECKOUT)}")
    return {"commit": git("rev-parse", "HEAD"), "dirty": bool(changed)}


def lines(run: Run, where: Mapping[str, object]) -> list[str]:
    """A JSON object for every figure, each with the entries of `where`."""
    return [
        json.dumps(
            {
                "part": run.part,
                "row": figure.row,
                "title": figure.title,
                "value": round(figure.value, 6),
                "unit": figure.unit,
                "peers": {peer: round(value, 6) for peer, value in figure.peers.items()},
                "ratio": None if figure.ratio is None else round(figure.ratio, 4),
                **where,
                "settings": dict(run.settings),
            },
            ensure_ascii=False,
        )
        for figure in run.figures
    ]


def record(run: Run, path: Path = FIGURES) -> int:
    """Append the figures of a run; return their number."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    written = lines(run, {**code(), "date": date, "machine": machine()})
    with path.open("a", encoding="utf-8") as handle:
        handle.write("".join(f"{line}\n" for line in written))
    return len(written)
