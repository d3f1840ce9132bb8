"""`python -m bench [--client | --kv | --peers | --spark | --lake | --growth | --memory | --amplification]`: one part.

--record [FILE]       append the figures to bench/figures.jsonl, with commit and machine
--figures-to FILE     write the figures as JSON
--plot [FILE]         draw the picture of the README from recorded figures instead, see `bench.plot`
--compare BEFORE AFTER  measure two commits in turns instead, see `bench.compare`
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import fluss
from bench import plot
from bench.compare import PARTS, compare
from bench.figures import Run
from bench.record import FIGURES, record


def part_of(arguments: list[str]) -> tuple[str, list[str]]:
    """The requested part and its arguments; by default the comparison of servers."""
    for name in PARTS:
        option = f"--{name}"
        if option in arguments:
            return name, [argument for argument in arguments if argument != option]
    return "server", arguments


def main(arguments: list[str]) -> None:
    """Run the requested part, and keep its figures if requested."""
    if arguments[:1] == ["--plot"]:
        plot.main(arguments[1:])
        return
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--record", nargs="?", type=Path, const=FIGURES)
    parser.add_argument("--figures-to", type=Path)
    parser.add_argument("--compare", nargs=2, metavar=("BEFORE", "AFTER"))
    options, rest = parser.parse_known_args(arguments)
    part, rest = part_of(rest)
    if options.compare is not None:
        if options.record is not None or options.figures_to is not None:
            raise SystemExit("bench: --compare computes ratios of two commits and records no figures")
        before, after = options.compare
        compare(part, before, after, rest)
        return
    # Only the requested module: others may use names that the commit under test lacks.
    measure: Callable[[list[str]], Run] = importlib.import_module(f"bench.{PARTS[part].module}").main
    run = measure(rest)
    if options.figures_to is not None:
        run.write(options.figures_to, str(Path(fluss.__file__).parents[1]))
    if options.record is not None:
        print(f"{record(run, options.record)} figures were appended to {options.record}")


if __name__ == "__main__":
    main(sys.argv[1:])
