"""Entry point of the ``fluss`` command: parses the command line and runs a subcommand.

Subcommands import the heavy modules that they need, so ``fluss --version`` is fast.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import fluss
from fluss.cli import admin, lake, repair, server, tier
from fluss.cli.versions import ShowVersions
from fluss.errors import FlussError

EXIT_USAGE = 2
EXIT_FAILED = 1


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the whole command line."""
    parser = argparse.ArgumentParser(prog="fluss", description="Streaming tables for Python and Spark.")
    _fail_if_pyfluss_owns_the_name()
    parser.add_argument("--version", action=ShowVersions)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    server.add_parser(commands)
    tier.add_parser(commands)
    lake.add_parser(commands)
    admin.add_parser(commands)
    repair.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code. Errors are one line on standard error."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    try:
        return int(options.run(options))
    except FlussError as error:
        print(f"fluss {options.command}: {error.message}", file=sys.stderr)
        return EXIT_FAILED


def _fail_if_pyfluss_owns_the_name() -> None:
    # pyfluss installs a package of the same name, and the package that was installed last owns __init__.py.
    if getattr(fluss, "DISTRIBUTION", None) != "flusspy":
        print(
            "fluss: the package 'fluss' in this environment belongs to pyfluss. Install flusspy in an environment of "
            "its own, or run: pip uninstall pyfluss && pip install --force-reinstall flusspy",
            file=sys.stderr,
        )
        raise SystemExit(EXIT_FAILED)


if __name__ == "__main__":
    sys.exit(main())
