"""Folders with programs and classes that are run later must be private, and are refused otherwise."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fluss.errors import FlussError
from fluss.spark.java import java_runtime


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_new_folders_are_private_whatever_the_umask(cache: Path) -> None:
    before = os.umask(0)
    try:
        folder = java_runtime.cache_folder("java", "1")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, folder.parent)] == [0o700, 0o700]
    assert java_runtime.cache_folder("java", "1") == folder


@pytest.mark.parametrize("level", [0, 1])
def test_a_folder_that_others_can_write_to_is_refused(cache: Path, level: int) -> None:
    folder = java_runtime.cache_folder("java", "1")
    [folder, folder.parent][level].chmod(0o777)
    with pytest.raises(FlussError, match=r"mode 777, so others could have put programs into it.*XDG_CACHE_HOME"):
        java_runtime.cache_folder("java", "1")


@pytest.mark.skipif(os.name == "nt" or os.getuid() != 0, reason="needs root, to give a folder away")
def test_a_folder_of_another_user_is_refused(cache: Path) -> None:
    folder = java_runtime.cache_folder("java", "1")
    os.chown(folder.parent, 4711, 4711)
    with pytest.raises(FlussError, match="belongs to user id 4711"):
        java_runtime.cache_folder("java", "1")


def test_a_link_to_elsewhere_is_refused(cache: Path, tmp_path: Path) -> None:
    folder = java_runtime.cache_folder("java", "1")
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(FlussError, match="Remove it"):
        java_runtime.cache_folder("java", "1")
