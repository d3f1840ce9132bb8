"""Log lines of the server's processes: to standard error or to rotated files, bounded in both cases.

Whatever goes wrong a million times must not fill a disk, and what goes wrong for two thousand tables is one event:
lines with the same text but other values are counted beyond the first few (`Repetitions`), each process has a budget
of lines (`LineBudget`), and files are rotated by size. So code that refuses or fails simply logs, each time. The
supervisor sets logging up before it forks; a child calls `name_process` so that its lines carry the role's name and,
with a directory, go to the role's own file. No lock is shared between processes.
"""

from __future__ import annotations

import logging
import logging.handlers
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

REPETITIONS_SHOWN = 5
REPETITION_WINDOW_SECONDS = 60.0
EXAMPLES_KEPT = 20
EXAMPLE_LIMIT_CHARACTERS = 100
BUSY_LOGGERS = (
    "fluss.server.network",
    "fluss.server.catalog.database_file",
    "fluss.server.environment",
    "fluss.server.storage.kv.disk_room",
    "fluss.server.storage.log.bucket_log",
    "fluss.server.tablet.staging.bucket_files",
    "fluss.server.tablet.write_requests",
)
LINES_BURST = 500
LINES_PER_SECOND = 20
LINE_LIMIT_CHARACTERS = 8192
LOG_FILE_LIMIT_BYTES = 10 << 20
LOG_FILES_KEPT = 4


class _Kind:
    """Lines that differ in their values only, since the beginning of a window."""

    __slots__ = ("examples", "last", "left_out", "since", "written")

    def __init__(self, since: float) -> None:
        self.since = since
        self.written = 0
        self.left_out = 0
        self.examples: dict[str, None] = {}
        self.last: logging.LogRecord | None = None


class Repetitions(logging.Filter):
    """Lets `REPETITIONS_SHOWN` lines of a kind pass per window; behind it comes one line with the count of the others.

    A kind is a logger, a level and a text without its values; texts are literals in our code, so kinds are bounded. The
    counts are told by `tell`, which each line calls, and the heart of each role every second. Any thread may log.
    """

    def __init__(self, target: logging.Handler | logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._target = target
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, int, str], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "is_count", False):
            return True
        self.tell()
        key = (record.name, record.levelno, str(record.msg))
        with self._lock:
            kind = self._kinds.get(key)
            if kind is None:
                kind = self._kinds[key] = _Kind(self._clock())
            if kind.written < REPETITIONS_SHOWN:
                kind.written += 1
                return True
            kind.left_out += 1
            kind.last = record
            if len(kind.examples) < EXAMPLES_KEPT and isinstance(record.args, tuple) and record.args:
                kind.examples[str(record.args[0])[:EXAMPLE_LIMIT_CHARACTERS]] = None
            return False

    def tell(self) -> None:
        """Write the counts of windows that are over, and forget them."""
        now = self._clock()
        with self._lock:
            over = [key for key, kind in self._kinds.items() if now - kind.since >= REPETITION_WINDOW_SECONDS]
            ended = [self._kinds.pop(key) for key in over]
        for kind in ended:
            if kind.last is not None:
                self._target.handle(_count_line(kind, kind.last))


def _count_line(kind: _Kind, last: logging.LogRecord) -> logging.LogRecord:
    examples = ", ".join(kind.examples) + (", ..." if len(kind.examples) == EXAMPLES_KEPT else "")
    text = f"{kind.left_out} more lines like this one in {REPETITION_WINDOW_SECONDS:.0f} s: {last.getMessage()}"
    if len(kind.examples) > 1:
        text += f" [among them: {examples}]"
    line = logging.makeLogRecord({"name": last.name, "levelno": last.levelno, "levelname": last.levelname, "msg": text})
    line.is_count = True
    return line


def count_repetitions() -> Callable[[], None]:
    """For a server inside of another program, whose handlers are not ours: at the loggers that peers can make busy.

    Returns what ends it when the server closes, so that a later server's lines are not counted with this one's.
    """
    filters = [(logger, Repetitions(logger)) for logger in map(logging.getLogger, BUSY_LOGGERS)]
    for logger, repetitions in filters:
        logger.addFilter(repetitions)

    def end() -> None:
        for logger, repetitions in filters:
            logger.removeFilter(repetitions)

    return end


def tell_repetitions() -> None:
    """Write the counts that are due, in a process that has nothing else to say."""
    for handler in logging.getLogger().handlers:
        for found in handler.filters:
            if isinstance(found, Repetitions):
                found.tell()


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
    handler.addFilter(Repetitions(handler))
    handler.addFilter(LineBudget())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        if isinstance(old, logging.FileHandler):
            old.close()
    root.addHandler(handler)
    root.setLevel(level.upper())
