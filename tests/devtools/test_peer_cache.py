"""The cache of peers: made once, made again after an interruption, and absent peers are remembered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.peers import apache_fluss, pyfluss_environment
from tools.peers.cache import ABSENT_SECONDS, PeerAbsentError, PeerMissingError, make_once, peers_folder

NOTHING_FOUND = "ERROR: No matching distribution found for pyfluss=={}\n"


class Maker:
    """Fills a folder, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls = 0
        self.error = error

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        assert not list(folder.iterdir()), "what an interrupted making has left is away"
        (folder / "half").touch()
        if self.error is not None:
            raise self.error
        (folder / "whole").touch()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLUSS_TEST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_made_once(cache: Path) -> None:
    maker = Maker()
    assert make_once("peer-1", maker) == make_once("peer-1", maker) == cache / "peer-1"
    assert maker.calls == 1


def test_an_interrupted_making_is_made_again(cache: Path) -> None:
    with pytest.raises(KeyError):
        make_once("peer-1", Maker(KeyError("interrupted")))
    assert (cache / "peer-1" / "half").exists()
    assert (make_once("peer-1", Maker()) / "whole").exists()


def test_made_again_when_the_proof_is_gone() -> None:
    maker = Maker()
    (make_once("peer-1", maker, "whole") / "whole").unlink()
    assert (make_once("peer-1", maker, "whole") / "whole").exists()
    assert maker.calls == 2


def test_an_absent_peer_is_asked_for_once_a_day(cache: Path) -> None:
    maker = Maker(PeerAbsentError("it is not published"))
    for _ in range(2):
        with pytest.raises(PeerAbsentError, match="it is not published"):
            make_once("peer-1", maker)
    assert maker.calls == 1
    note = cache / "peer-1.absent"
    yesterday = note.stat().st_mtime - ABSENT_SECONDS - 1
    os.utime(note, (yesterday, yesterday))
    make_once("peer-1", Maker())
    assert not note.exists()


def test_a_failure_is_not_remembered() -> None:
    with pytest.raises(PeerMissingError):
        make_once("peer-1", Maker(PeerMissingError("no network")))
    make_once("peer-1", Maker())


def test_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert peers_folder() == tmp_path / "cache"
    monkeypatch.delenv("FLUSS_TEST_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert peers_folder() == tmp_path / "xdg" / "flusspy-tests"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the standard says: as if it did not exist
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert peers_folder() == tmp_path / "home" / ".cache" / "flusspy-tests"


def test_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FLUSS_TEST_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(PeerMissingError, match="set FLUSS_TEST_CACHE"):
        peers_folder()


def test_what_pip_says_about_wheels() -> None:
    nothing = NOTHING_FOUND.format(pyfluss_environment.PYFLUSS_VERSION)
    assert pyfluss_environment.is_without_wheel(nothing)
    assert not pyfluss_environment.is_without_wheel("WARNING: Retrying (Retry(total=4 ...\n" + nothing)
    assert not pyfluss_environment.is_without_wheel(NOTHING_FOUND.format("7"))


def test_apache_fluss_without_java_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerMissingError, match="Java"):
        apache_fluss.ApacheFluss()
    assert not list(temporary.iterdir())
