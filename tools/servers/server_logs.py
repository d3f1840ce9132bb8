"""The log files of the servers that ran in this process: a failed test prints their ends."""

from __future__ import annotations

from pathlib import Path

LOGS = 4

_logs: list[Path] = []


def watch_log(path: Path) -> None:
    """Register a file to which a server writes its log."""
    if path not in _logs:
        _logs.append(path)


def latest_logs() -> list[Path]:
    """The log files that were written to last, the latest at the end."""
    written = {path: path.stat().st_mtime for path in _logs if path.exists()}
    return sorted(written, key=lambda path: written[path])[-LOGS:]
