"""A disk that fills up is logged once per level."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from fluss.server.coordinator.disk_watch import DiskWatch


def test_each_level_is_logged_once_and_again_after_there_was_space(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    watch = DiskWatch(Path("/data"))
    for percent in (50, 79.9, 80, 81, 92, 92, 89, 92, 96, 95.5, 60, 85):
        watch.note(percent, 123_456_789)
    said = [(record.levelname, record.message.split(" full")[0]) for record in caplog.records]
    full = "the disk of /data is"
    assert said == [
        ("WARNING", f"{full} 80 %"),
        ("WARNING", f"{full} 92 %"),
        ("WARNING", f"{full} 96 %"),
        ("INFO", f"{full} 60 %"),
        ("WARNING", f"{full} 85 %"),
    ]
    assert "123 MB are left: free some space" in caplog.messages[0]


def test_a_real_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    DiskWatch(tmp_path).check()
    DiskWatch(tmp_path / "missing").check()
    assert "missing: " in caplog.messages[-1]
