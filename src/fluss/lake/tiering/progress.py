"""The progress of rounds for users: one line that changes on a terminal, plain lines elsewhere.

    shop.orders [######....] 3/5 splits, 1,200,000 rows, 3 files, lag 2 s

Any thread may report; lines are written one at a time.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from dataclasses import dataclass
from typing import TextIO

from fluss.errors import FlussError
from fluss.lake.maintenance.service import MaintenanceReport
from fluss.lake.tiering.planning import RoundPlan
from fluss.lake.tiering.rounds import RoundReport
from fluss.lake.tiering.task_values import SplitResult
from fluss.model.paths import TablePath

BAR_CHARACTERS = 10
REDRAW_SECONDS = 0.1


class Quiet:
    """A reporter that discards everything."""

    def planned(self, path: TablePath, plan: RoundPlan) -> None:
        """A round is planned: its splits are known."""

    def split_done(self, path: TablePath, result: SplitResult) -> None:
        """A split has ended, with or without an error."""

    def step(self, path: TablePath, name: str) -> None:
        """A step is done: planned, written, prepared, committed or registered."""

    def finished(self, report: RoundReport) -> None:
        """A round is over."""

    def failed(self, path: TablePath, error: FlussError) -> None:
        """A round failed and committed nothing."""

    def maintained(self, path: TablePath, report: MaintenanceReport) -> None:
        """The maintenance that follows a round has ended."""


@dataclass
class _Line:
    splits: int
    planned_at: float
    done: int = 0
    rows: int = 0
    files: int = 0
    doing: str = ""

    def text(self, path: TablePath) -> str:
        filled = BAR_CHARACTERS * self.done // max(self.splits, 1)
        bar = "#" * filled + "." * (BAR_CHARACTERS - filled)
        lag = time.time() - self.planned_at
        return (
            f"{path} [{bar}] {self.done}/{self.splits} splits, {self.rows:,} rows, {_files(self.files)}, "
            f"lag {lag:.0f} s{self.doing}"
        )


class Progress(Quiet):
    """Writes lines to a stream, by default standard error. Rounds without new rows are not shown."""

    def __init__(self, stream: TextIO | None = None, *, only_errors: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._only_errors = only_errors
        self._is_terminal = self._stream.isatty() and not only_errors
        self._lock = threading.Lock()
        self._lines: dict[TablePath, _Line] = {}
        self._drawn_at = 0.0
        self._has_bar = False
        self._has_said = False

    def planned(self, path: TablePath, plan: RoundPlan) -> None:
        with self._lock:
            if plan.splits:
                self._lines[path] = _Line(len(plan.splits), plan.planned_at)
                self._draw()

    def split_done(self, path: TablePath, result: SplitResult) -> None:
        with self._lock:
            line = self._lines.get(path)
            if line is None:
                return
            line.done += 1
            if result.message is not None:
                line.rows += result.message.row_count
                line.files += len(result.message.added) + len(result.message.position_deletes)
            self._draw(at_once=False)

    def step(self, path: TablePath, name: str) -> None:
        with self._lock:
            line = self._lines.get(path)
            if line is not None and name == "written":
                line.doing = ", committing"
                self._draw()

    def finished(self, report: RoundReport) -> None:
        with self._lock:
            self._lines.pop(report.path, None)
            if report.snapshot_id is not None and not self._only_errors:
                self._print(report_text(report))
            if report.error is not None:
                self._print(f"{report.path}: some buckets were skipped: {report.error}")
            self._draw()

    def failed(self, path: TablePath, error: FlussError) -> None:
        with self._lock:
            self._lines.pop(path, None)
            self._print(f"{path}: nothing was committed: {error}")
            self._draw()

    def maintained(self, path: TablePath, report: MaintenanceReport) -> None:
        with self._lock:
            if report != MaintenanceReport() and (report.errors or not self._only_errors):
                self._print(f"{path}: {report}")
                self._draw()

    def ended(self, tables: int) -> None:
        """Report the end of a run over `tables` tables, if nothing else was shown."""
        with self._lock:
            if self._has_said or self._only_errors:
                return
            if tables == 0:
                self._print("nothing to tier: no table has a lake; set table.datalake.enabled=true to add one")
            else:
                which = "the table" if tables == 1 else f"all {tables} tables"
                self._print(f"nothing to tier: the lake has every row of {which} with a lake")

    def _print(self, text: str) -> None:
        self._has_said = True
        if self._has_bar:
            self._stream.write("\r\x1b[K")
            self._has_bar = False
        print(text, file=self._stream, flush=True)

    def _draw(self, *, at_once: bool = True) -> None:
        """Draw the line of all running rounds, on a terminal only."""
        now = time.monotonic()
        if not self._is_terminal or (not at_once and now - self._drawn_at < REDRAW_SECONDS):
            return
        self._drawn_at = now
        text = " | ".join(line.text(path) for path, line in self._lines.items())
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r\x1b[K{text[:width]}")
        self._stream.flush()
        self._has_bar = bool(text)


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def report_text(report: RoundReport) -> str:
    """Describe a finished round in one line.

    >>> report_text(RoundReport(TablePath("shop", "orders"), 1, 77, 1200, 2, 4096, seconds=1.0, lag_seconds=0.5))
    'shop.orders: 1,200 rows in 2 files (4,096 bytes), snapshot 77, 1.0 s, lag 0.5 s'
    """
    more = ", more follows" if report.is_cut else ""
    return (
        f"{report.path}: {report.rows:,} rows in {_files(report.files)} ({report.size_bytes:,} bytes), "
        f"snapshot {report.snapshot_id}, {report.seconds:.1f} s, lag {report.lag_seconds:.1f} s{more}"
    )
