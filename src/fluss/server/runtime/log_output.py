"""Log lines of the server's processes: to standard error or to rotated files, bounded in both cases.

Whatever goes wrong a million times must not fill a disk, and what goes wrong for two thousand tables is one event:
lines with the same text but other values are counted beyond the first few (`Repetitions`), each process has a budget
of lines (`LineBudget`), and files are rotated by size. So code that refuses or fails simply logs, each time. The
supervisor sets logging up before it forks; a child calls `name_process` so that its lines carry the role's name and,
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
# All loggers of the server at which something can fail again and again; `test_log_output` finds those that are missing.
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
# What is damaged, cut, put aside or cannot be opened: each file has its line. Only the very same line is counted. What
# these loggers say of something that befalls all buckets at once, such as a full disk, has the attribute `is_counted`.
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

    A kind is a logger, a level and a text without its values; texts are literals in our code, so kinds are bounded. Of
    evidence (`EVIDENCE_LOGGERS`) the values belong to the kind, for `EVIDENCE_LIMIT_LINES` in a window. The counts are
    told by `tell`, which each line calls, and the heart of each role every second, and by `tell_all` at the end. Any
    thread may log. A forked child leaves the counts of its parent to it.
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
        self.tell()
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

    def tell(self) -> None:
        """Write the counts of windows that are over, and forget them."""
        now = self._clock()
        ended = []
        with self._lock:
            while self._kinds:
                key = next(iter(self._kinds))  # they are in the order of their beginnings
                if now - self._kinds[key].since < REPETITION_WINDOW_SECONDS:
                    break
                ended.append(self._kinds.pop(key))
        self._write(ended, REPETITION_WINDOW_SECONDS)

    def tell_all(self) -> None:
        """Write all counts, because nobody will later."""
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
    """For a server inside of another program, whose handlers are not ours: at the loggers that peers can make busy.

    Returns what ends it when the server closes, so that a later server's lines are not counted with this one's.
    """
    filters = [(logger, Repetitions(logger)) for logger in map(logging.getLogger, BUSY_LOGGERS)]
    for logger, repetitions in filters:
        logger.addFilter(repetitions)

    def end() -> None:
        for logger, repetitions in filters:
            repetitions.tell_all()
            logger.removeFilter(repetitions)

    return end


def tell_repetitions() -> None:
    """Write the counts that are due, in a process that has nothing else to say."""
    for handler in logging.getLogger().handlers:
        for found in handler.filters:
            if isinstance(found, Repetitions):
                found.tell()


class LineBudget(logging.Filter):
    """Lets `LINES_BURST` lines pass and then `LINES_PER_SECOND`; says how many it held back. Any thread may log.

    Evidence has a limit of its own, see `Repetitions`.
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
        _tell_all(self)
        super().close()


class _FileHandler(logging.handlers.RotatingFileHandler):
    def close(self) -> None:
        _tell_all(self)
        super().close()


def _tell_all(handler: logging.Handler) -> None:
    """The process ends: counts that are still open would be lost."""
    for found in handler.filters:
        if isinstance(found, Repetitions):
            found.tell_all()


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
    """`kill -USR1`: where is every thread? To standard error, or to ``log_dir/<process name>.stacks.log``."""
    if log_dir is None:
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        return
    path = log_dir / f"{process_name}.stacks.log"
    is_long = path.exists() and path.stat().st_size > LOG_FILE_LIMIT_BYTES
    # The handler of the signal writes to the bare descriptor, so it stays open as long as the process lives.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(path, flags | os.O_TRUNC if is_long else flags, 0o666)
    faulthandler.register(signal.SIGUSR1, file=descriptor, all_threads=True)
