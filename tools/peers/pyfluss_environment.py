"""The published client pyfluss in a virtual environment of its own: it has the import name of this project."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.peers.cache import PeerAbsentError, fail_if_not_fetched, make_once, run_fetch, run_quietly

PYFLUSS_VERSION = "1.0.0"


def pyfluss_python() -> Path:
    """The interpreter of the environment with pyfluss, created on the first call; may raise `PeerMissingError`."""
    interpreter = f"{sys.version_info.major}.{sys.version_info.minor}"

    def make(folder: Path) -> None:
        run_fetch(
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            "the virtual environment for pyfluss cannot be created",
        )
        python = str(folder / "bin" / "python")
        # No sources: they need a Rust compiler, and take minutes to build.
        options = ["--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
        packages = [f"pyfluss=={PYFLUSS_VERSION}", "pyarrow", "pandas"]
        what = f"pip could not fetch pyfluss {PYFLUSS_VERSION}"
        done = run_quietly([python, "-m", "pip", "install", *options, *packages], what)
        if is_without_wheel(done.stdout):
            raise PeerAbsentError(f"there is no wheel of pyfluss {PYFLUSS_VERSION} for Python {interpreter}")
        fail_if_not_fetched(done, what)
        run_fetch([python, "-c", "import fluss, pandas, pyarrow; fluss.FlussConnection"], "pyfluss cannot be imported")

    # If the user has removed the interpreter, the link to it is broken, and the environment is created again.
    return make_once(f"pyfluss-{PYFLUSS_VERSION}-python{interpreter}", make, "bin/python") / "bin" / "python"


def is_without_wheel(printed: str) -> bool:
    """True if pip reports that an index has no file for us. Without a network it reports the same, after retries."""
    return f"No matching distribution found for pyfluss=={PYFLUSS_VERSION}" in printed and "Retrying" not in printed
