"""The test-suite of pyfluss itself: it comes with the source package in the registry and runs against any server.

Only its tests and examples are unpacked, into the user's cache; pyfluss is the wheel of `pyfluss_environment`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tools.peers.cache import PeerAbsentError, fail_if_not_fetched, make_once, run_fetch, run_quietly
from tools.peers.pyfluss_environment import PYFLUSS_VERSION, is_without_wheel, pyfluss_python
from tools.waiting import patience

SUITE_TIMEOUT_SECONDS = patience(280.0)
_SOURCES = f"pyfluss-{PYFLUSS_VERSION}"
# Where it lies in the source package; the file has the settings of pytest.
_WANTED = (f"{_SOURCES}/pyproject.toml", f"{_SOURCES}/bindings/python/test/", f"{_SOURCES}/bindings/python/example/")
_NEEDED_BY_TESTS = ("pytest", "pytest-asyncio", "filelock")
# pip builds the metadata of a source package before it hands the file out, which takes a compiler for Rust. This stands
# in for the package's builder.
_BUILDER = f"""
import os

def get_requires_for_build_wheel(settings=None):
    return []

def prepare_metadata_for_build_wheel(directory, settings=None):
    name = "pyfluss-{PYFLUSS_VERSION}.dist-info"
    os.mkdir(os.path.join(directory, name))
    with open(os.path.join(directory, name, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: pyfluss\\nVersion: {PYFLUSS_VERSION}\\n")
    return name
"""


_PLUGIN = "fluss_aio_as_pyfluss"
# The rest of the package is still found below the name.
_IN_THE_PLACE_OF_PYFLUSS = """
import sys
import fluss
import fluss.aio
fluss.aio.__path__ = fluss.__path__
sys.modules["fluss"] = fluss.aio
"""


@dataclass(frozen=True)
class SuiteResult:
    """How a run ended: names of tests, and what was printed."""

    passed: frozenset[str]
    others: frozenset[str]
    output: str


def pyfluss_suite() -> Path:
    """The folder of the unpacked suite, fetched on the first call; may raise `PeerMissingError`."""
    interpreter = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = str(pyfluss_python())

    def make(folder: Path) -> None:
        _fetch_sources(python, folder)
        packages = folder / "packages"
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(packages)]
        run_fetch([*command, *_NEEDED_BY_TESTS], "pip could not fetch what the tests of pyfluss need")

    return make_once(f"pyfluss-{PYFLUSS_VERSION}-suite-python{interpreter}", make, f"{_SOURCES}/bindings")


def run_suite(bootstrap: str, sasl_bootstrap: str, *selection: str, with_our_client: bool = False) -> SuiteResult:
    """Run the suite, or the tests that `selection` (arguments of pytest) names, against a server.

    With pyfluss, or with `fluss.aio` in its place.
    """
    folder = pyfluss_suite()
    python = str(pyfluss_python())
    with tempfile.TemporaryDirectory(prefix="fluss-suite-") as scratch:
        path = [str(folder / "packages")]
        if with_our_client:
            python = sys.executable
            (Path(scratch) / f"{_PLUGIN}.py").write_text(_IN_THE_PLACE_OF_PYFLUSS, encoding="utf-8")
            path.append(scratch)
            selection = ("-p", _PLUGIN, *selection)
        report = Path(scratch) / "report.xml"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "FLUSS_BOOTSTRAP_SERVERS": bootstrap,
            "FLUSS_SASL_BOOTSTRAP_SERVERS": sasl_bootstrap,
            "RUST_LOG": "off",
        }
        environment.pop("PYTEST_ADDOPTS", None)
        options = ["-p", "no:cacheprovider", "-q", f"--junit-xml={report}", *selection]
        done = subprocess.run(
            [python, "-m", "pytest", "bindings/python/test", *options],
            cwd=folder / _SOURCES,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SUITE_TIMEOUT_SECONDS,
        )
        return _result(report, done.stdout)


def _fetch_sources(python: str, folder: Path) -> None:
    (folder / "builder").mkdir()
    (folder / "builder" / "maturin.py").write_text(_BUILDER, encoding="utf-8")
    what = f"pip could not fetch the source package of pyfluss {PYFLUSS_VERSION}"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", str(folder)]
    command = [python, "-m", "pip", "download", *options, f"pyfluss=={PYFLUSS_VERSION}"]
    done = run_quietly(["env", f"PYTHONPATH={folder / 'builder'}", *command], what)
    if is_without_wheel(done.stdout):
        raise PeerAbsentError(f"the registry has no source package of pyfluss {PYFLUSS_VERSION}")
    fail_if_not_fetched(done, what)
    archive = folder / f"{_SOURCES}.tar.gz"
    with tarfile.open(archive) as sources:
        members = [member for member in sources.getmembers() if member.isfile() and member.name.startswith(_WANTED)]
        for member in members:
            sources.extract(member, folder)
    archive.unlink()


def _result(report: Path, output: str) -> SuiteResult:
    passed: set[str] = set()
    others: set[str] = set()
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        bad = any(case.find(kind) is not None for kind in ("failure", "error", "skipped"))
        (others if bad else passed).add(name)
    return SuiteResult(frozenset(passed), frozenset(others), output)
