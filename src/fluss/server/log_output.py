"""Log lines of the server's processes: to standard error or to rotated files, bounded in both cases.

Whatever goes wrong a million times must not fill a disk: each process has a budget of lines (`LineBudget`), and
files are rotated by size. The supervisor sets logging up before it forks; a child calls `name_process` so that its
lines carry the role's name and, with a directory, go to the role's own file. No lock is shared between processes.
"""

from __future__ import annotations

import logging
import logging.handlers
import sys
import threading
import time
from pathlib import Path

LINES_BURST = 500
LINES_PER_SECOND = 20
LINE_LIMIT_CHARACTERS = 8192
LOG_FILE_LIMIT_BYTES = 10 << 20
LOG_FILES_KEPT = 4


class LineBudget(logging.Filter):
    """Lets `LINES_BURST` lines pass and then `LINES_PER_SECOND`; says how many it held back. Any thread may log."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._tokens = float(LINES_BURST)
        self._checked_at = time.monotonic()
        self._held_back = 0

    def filter(self, record: logging.LogRecord) -> bool:
        with self._lock:
            now = time.monotonic()
            self._tokens = min(float(LINES_BURST), self._tokens + (now - self._checked_at) * LINES_PER_SECOND)
            self._checked_at = now
            if self._tokens < 1:
                self._held_back += 1
                return False
            self._tokens -= 1
            held_back, self._held_back = self._held_back, 0
        if held_back:
            record.msg = f"{record.getMessage()} [{held_back} earlier lines were held back]"
            record.args = None
        return True


class _BoundedFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if len(text) > LINE_LIMIT_CHARACTERS:
            return f"{text[:LINE_LIMIT_CHARACTERS]}... [{len(text) - LINE_LIMIT_CHARACTERS} characters cut]"
        return text


def set_up_logging(process_name: str, level: str, log_dir: Path | None) -> None:
    """Send the root logger's lines to standard error, or to ``log_dir/<process name>.log``."""
    handler: logging.Handler
    if log_dir is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        log_dir.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(
            log_dir / f"{process_name}.log", maxBytes=LOG_FILE_LIMIT_BYTES, backupCount=LOG_FILES_KEPT
        )
    handler.setFormatter(_BoundedFormatter(f"%(asctime)s %(levelname)s {process_name} %(name)s: %(message)s"))
    handler.addFilter(LineBudget())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        if isinstance(old, logging.FileHandler):
            old.close()
    root.addHandler(handler)
    root.setLevel(level.upper())
