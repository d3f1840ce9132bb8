"""A data directory and the directories above it that are new survive a power loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluss.server.process import data_directory
from fluss.server.process.data_directory import DataDirectory
from fluss.server.storage.files import FileSystem


class Recording(FileSystem):
    """A file system that records which directories are synced, or refuses to."""

    synced: list[str]
    refuses = False

    def sync_directory(self, path: str) -> None:
        if self.refuses:
            raise PermissionError(13, "no access")
        self.synced.append(path)
        super().sync_directory(path)


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> type[Recording]:
    class Recorded(Recording):
        synced: list[str] = []  # noqa: RUF012

    monkeypatch.setattr(data_directory, "FileSystem", Recorded)
    return Recorded


def test_the_parents_of_a_new_directory_are_synced(tmp_path: Path, recorded: type[Recording]) -> None:
    path = tmp_path / "a" / "b" / "data"
    DataDirectory(path).close()
    assert path.stat().st_mode & 0o777 == 0o700
    assert set(recorded.synced) >= {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")}


def test_the_parent_of_an_existing_directory_is_synced(tmp_path: Path, recorded: type[Recording]) -> None:
    """Another process may have created it a moment ago, or a server that was killed before its sync."""
    path = tmp_path / "data"
    path.mkdir(0o700)
    DataDirectory(path).close()
    assert str(tmp_path) in recorded.synced


def test_a_parent_that_belongs_to_another_user_is_no_obstacle(tmp_path: Path, recorded: type[Recording]) -> None:
    path = tmp_path / "data"
    path.mkdir(0o700)
    recorded.refuses = True
    DataDirectory(path).close()
