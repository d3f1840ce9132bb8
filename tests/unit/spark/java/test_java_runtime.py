"""Spark gets a path of this Python that a shell reads as one word."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fluss.spark.java.java_runtime import plain_python


def linked_environment(folder: Path) -> str:
    """A path of this Python in the folder."""
    folder.mkdir()
    (folder / "environment").symlink_to(sys.prefix)
    return str(folder / "environment" / Path(sys.executable).relative_to(sys.prefix))


def prefix_of(python: str) -> Path:
    command = [python, "-c", "import sys; print(sys.prefix)"]
    return Path(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()).resolve()


def test_a_plain_path_is_kept() -> None:
    assert plain_python("/usr/bin/python3") == "/usr/bin/python3"


@pytest.mark.parametrize("name", ["a folder", "it's", "Übung", "a (copy) & $HOME"])
def test_a_path_that_a_shell_would_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    python = linked_environment(tmp_path / name)
    plain = plain_python(python)
    assert plain == plain_python(python)
    assert shlex.split(plain) == [plain]
    assert plain.startswith(str(tmp_path / "cache"))
    assert prefix_of(plain) == Path(sys.prefix).resolve()


def test_a_cache_with_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    plain = plain_python(linked_environment(tmp_path / "a folder"))
    assert plain.startswith(str(tmp_path / "temporary"))
    assert prefix_of(plain) == Path(sys.prefix).resolve()


def test_nowhere_to_link_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "my temporary files"))
    python = linked_environment(tmp_path / "a folder")
    assert plain_python(python) == python
