"""Logging of the server's processes: to standard error or to rotated files, bounded in both cases.

An error that happens a million times must not fill a disk, and one that affects two thousand tables is one event:
beyond the first few, lines with the same text but other values are only counted (`Repetitions`), each process has a
budget of lines (`LineBudget`), and files are rotated by size. So code that refuses or fails simply logs, every time.
The supervisor sets up logging before it forks; a child calls `name_process` so that its lines have the role's name and,
with a directory, go to the role's own file. No lock is shared between processes.
"""

from __future__ import annotations

import faulthandler
import logging
import logging.handlers
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

REPETITIONS_SHOWN = 5
REPETITION_WINDOW_SECONDS = 60.0
EXAMPLES_KEPT = 20
EXAMPLE_LIMIT_CHARACTERS = 100
# All loggers of the server that can log repeated failures; `test_log_output` finds missing ones.
BUSY_LOGGERS = (
    "fluss.server.catalog.database_file",
    "fluss.server.catalog.safety_copies",
    "fluss.server.coordinator.tables.auto_partition",
    "fluss.server.coordinator.disk_watch",
    "fluss.server.coordinator.lake.offsets_files",
    "fluss.server.coordinator.lake.partition_expiry",
    "fluss.server.coordinator.lake.tiering_states",
    "fluss.server.coordinator.service",
    "fluss.server.coordinator.tables.table_copies",
    "fluss.server.apis.environment",
    "fluss.server.network",
    "fluss.server.storage.directory.disk_reserve",
    "fluss.server.storage.kv.disk_room",
    "fluss.server.storage.kv.kv_bucket",
    "fluss.server.storage.kv.replay",
    "fluss.server.storage.kv.store",
    "fluss.server.storage.log.append",
    "fluss.server.storage.log.background_files",
    "fluss.server.storage.log.bucket_log",
    "fluss.server.storage.log.checkpoint_job",
    "fluss.server.storage.log.checkpointer",
    "fluss.server.storage.log.commit_reports",
    "fluss.server.storage.log.committer",
    "fluss.server.storage.log.reserved_offsets",
    "fluss.server.storage.log.held_commits",
    "fluss.server.storage.log.log_writer",
    "fluss.server.storage.log.reader",
    "fluss.server.storage.log.recovery",
    "fluss.server.storage.log.sync_helpers",
    "fluss.server.tablet.buckets.registry",
    "fluss.server.tablet.buckets.final_ends",
    "fluss.server.tablet.kv.merge.auto_increment",
    "fluss.server.tablet.kv.put_queue",
    "fluss.server.tablet.kv_snapshots.bucket_snapshots",
    "fluss.server.tablet.kv_snapshots.restore",
    "fluss.server.tablet.snapshot_rounds",
    "fluss.server.tablet.buckets.dropped_files",
    "fluss.server.tablet.maintenance",
    "fluss.server.tablet.remote.remote_log",
    "fluss.server.tablet.staging.applier",
    "fluss.server.tablet.staging.bucket_files",
    "fluss.server.tablet.staging.service",
    "fluss.server.tablet.buckets.write_requests",
)
# Evidence of damage: each file that is damaged, cut off, put aside or cannot be opened gets its line; only identical
# lines are counted. Lines about something that affects all buckets at once, such as a full disk, have `is_counted`.
EVIDENCE_LOGGERS = frozenset(
    {
        "fluss.server.process.start_check",
        "fluss.server.storage.kv.replay",
        "fluss.server.storage.kv.store",
        "fluss.server.storage.log.reader",
        "fluss.server.storage.log.recovery",
        "fluss.server.tablet.buckets.registry",
        "fluss.server.tablet.kv_snapshots.bucket_snapshots",
        "fluss.server.tablet.kv_snapshots.restore",
    }
)
EVIDENCE_LIMIT_LINES = 5000
LINES_BURST = 500
LINES_PER_SECOND = 20
LINE_LIMIT_CHARACTERS = 8192
LOG_FILE_LIMIT_BYTES = 10 << 20
LOG_FILES_KEPT = 4


class _Kind:
    """The lines of one window that differ only in their values."""

    __slots__ = ("examples", "last", "left_out", "since", "written")

    def __init__(self, since: float) -> None:
        self.since = since
        self.written = 0
        self.left_out = 0
        self.examples: dict[str, None] = {}
        self.last: logging.LogRecord | None = None


class Repetitions(logging.Filter):
    """Passes `REPETITIONS_SHOWN` lines of a kind per window; after the window, one line has the count of the others.

    A kind is a logger, a level and a format string; format strings are literals in our code, so kinds are bounded. For
    evidence (`EVIDENCE_LOGGERS`), the values are part of the kind, up to `EVIDENCE_LIMIT_LINES` in a window. Counts are
    written by `write_due_counts`, called with every log line and by the heartbeat of each role, and by
    `write_all_counts` at the end. Any thread may log. A forked child ignores the counts of its parent.
    """

    def __init__(self, target: logging.Handler | logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._target = target
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, int, str], _Kind] = {}
        self._process_id = os.getpid()

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "is_count", False):
            return True
        self.write_due_counts()
        with self._lock:
            is_evidence = (
                record.name in EVIDENCE_LOGGERS
                and not getattr(record, "is_counted", False)
                and len(self._kinds) < EVIDENCE_LIMIT_LINES
            )
            key = (record.name, record.levelno, record.getMessage() if is_evidence else str(record.msg))
            kind = self._kinds.get(key)
            if kind is None:
                kind = self._kinds[key] = _Kind(self._clock())
            if kind.written < REPETITIONS_SHOWN:
                kind.written += 1
                record.is_evidence = is_evidence
                return True
            kind.left_out += 1
            kind.last = record
            if len(kind.examples) < EXAMPLES_KEPT and isinstance(record.args, tuple) and record.args:
                kind.examples[str(record.args[0])[:EXAMPLE_LIMIT_CHARACTERS]] = None
            return False

    def write_due_counts(self) -> None:
        """Write and clear the counts of windows that are over."""
        now = self._clock()
        ended = []
        with self._lock:
            while self._kinds:
                key = next(iter(self._kinds))  # windows are in the order in which they began
                if now - self._kinds[key].since < REPETITION_WINDOW_SECONDS:
                    break
                ended.append(self._kinds.pop(key))
        self._write(ended, REPETITION_WINDOW_SECONDS)

    def write_all_counts(self) -> None:
        """Write all counts, because the process ends."""
        with self._lock:
            ended, self._kinds = list(self._kinds.values()), {}
        if self._process_id == os.getpid():
            now = self._clock()
            for kind in ended:
                self._write([kind], min(REPETITION_WINDOW_SECONDS, now - kind.since))

    def _write(self, ended: list[_Kind], seconds: float) -> None:
        for kind in ended:
            if kind.last is not None:
                self._target.handle(_count_line(kind, kind.last, seconds))


def _count_line(kind: _Kind, last: logging.LogRecord, seconds: float) -> logging.LogRecord:
    examples = ", ".join(kind.examples) + (", ..." if len(kind.examples) == EXAMPLES_KEPT else "")
    text = f"{kind.left_out} more lines like this one in {seconds:.0f} s: {last.getMessage()}"
    if len(kind.examples) > 1:
        text += f" [among them: {examples}]"
    line = logging.makeLogRecord({"name": last.name, "levelno": last.levelno, "levelname": last.levelname, "msg": text})
    line.is_count = True
    return line


def count_repetitions() -> Callable[[], None]:
    """Count repetitions in an embedded server, whose log handlers are not ours, at the loggers that peers can flood.

    Return a function that ends the counting when the server closes, so that a later server is counted separately.
    """
    filters = [(logger, Repetitions(logger)) for logger in map(logging.getLogger, BUSY_LOGGERS)]
    for logger, repetitions in filters:
        logger.addFilter(repetitions)

    def end() -> None:
        for logger, repetitions in filters:
            repetitions.write_all_counts()
            logger.removeFilter(repetitions)

    return end


def write_due_counts() -> None:
    """Write the counts that are due, in a process that logs nothing else."""
    for handler in logging.getLogger().handlers:
        for found in handler.filters:
            if isinstance(found, Repetitions):
                found.write_due_counts()


class LineBudget(logging.Filter):
    """Passes `LINES_BURST` lines and then `LINES_PER_SECOND`; reports how many it held back. Any thread may log.

    Evidence has its own limit, see `Repetitions`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._tokens = float(LINES_BURST)
        self._checked_at = time.monotonic()
        self._held_back = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "is_evidence", False):
            return True
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


class _ConsoleHandler(logging.StreamHandler):  # type: ignore[type-arg]  # no brackets before Python 3.11
    def close(self) -> None:
        _write_all_counts(self)
        super().close()


class _FileHandler(logging.handlers.RotatingFileHandler):
    def close(self) -> None:
        _write_all_counts(self)
        super().close()


def _write_all_counts(handler: logging.Handler) -> None:
    """Write the counts of open windows, which would be lost when the process ends."""
    for found in handler.filters:
        if isinstance(found, Repetitions):
            found.write_all_counts()


def set_up_logging(process_name: str, level: str, log_dir: Path | None) -> None:
    """Send the root logger's lines to standard error, or to ``log_dir/<process name>.log``."""
    handler: logging.Handler
    if log_dir is None:
        handler = _ConsoleHandler(sys.stderr)
    else:
        log_dir.mkdir(parents=True, exist_ok=True)
        handler = _FileHandler(
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


def write_stacks_on_signal(process_name: str, log_dir: Path | None) -> None:
    """Make `kill -USR1` write all stacks to standard error, or to ``log_dir/<process name>.stacks.log``."""
    if log_dir is None:
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        return
    path = log_dir / f"{process_name}.stacks.log"
    is_long = path.exists() and path.stat().st_size > LOG_FILE_LIMIT_BYTES
    # The signal handler writes to the bare file descriptor, so it stays open as long as the process runs.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(path, flags | os.O_TRUNC if is_long else flags, 0o666)
    faulthandler.register(signal.SIGUSR1, file=descriptor, all_threads=True)
