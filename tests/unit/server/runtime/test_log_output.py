"""Lines of the server's log: repetitions for many tables become a few lines and a count."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fluss
from fluss.server.runtime import log_output
from fluss.server.runtime.log_output import (
    BUSY_LOGGERS,
    LINES_BURST,
    REPETITION_WINDOW_SECONDS,
    REPETITIONS_SHOWN,
    LineBudget,
    Repetitions,
    count_repetitions,
    set_up_logging,
)


class Lines(logging.Handler):
    """Collects the written lines."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.repetitions = Repetitions(self, lambda: self.now)
        self.addFilter(self.repetitions)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    logger = logging.getLogger("test.repetitions")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_two_thousand_failures_are_a_few_lines_and_one_with_the_count(lines: Lines) -> None:
    logger = logging.getLogger("test.repetitions")
    for number in range(2000):
        logger.warning("table %s failed: %s", f"t{number}", "no room")
    logger.warning("something else")
    assert len(lines.texts) == REPETITIONS_SHOWN + 1
    lines.now += REPETITION_WINDOW_SECONDS
    lines.repetitions.write_due_counts()
    lines.repetitions.write_due_counts()
    assert len(lines.texts) == REPETITIONS_SHOWN + 2
    assert lines.texts[-1].startswith(
        f"{2000 - REPETITIONS_SHOWN} more lines like this one in 60 s: table t1999 failed"
    )
    assert "among them: t5, t6, " in lines.texts[-1]
    logger.warning("table %s failed: %s", "again", "no room")
    assert lines.texts[-1] == "table again failed: no room"


def test_the_next_line_of_any_kind_also_writes_the_count(lines: Lines) -> None:
    logger = logging.getLogger("test.repetitions")
    for number in range(REPETITIONS_SHOWN + 1):
        logger.error("bucket %d failed", number)
    lines.now += REPETITION_WINDOW_SECONDS
    logger.error("something else")
    assert lines.texts[-2:] == [
        f"1 more lines like this one in 60 s: bucket {REPETITIONS_SHOWN} failed",
        "something else",
    ]


def test_counting_ends_with_the_server_that_began_it(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("fluss.server.network")
    before = list(logger.filters)
    first, second = count_repetitions(), count_repetitions()
    first()
    for number in range(REPETITIONS_SHOWN + 1):
        logger.warning("login %d refused", number)
    assert len(caplog.messages) == REPETITIONS_SHOWN
    second()
    logger.warning("login %d refused", 9)
    assert caplog.messages[-1] == "login 9 refused"
    assert logger.filters == before


EVIDENCE = "fluss.server.storage.log.recovery"


def test_every_file_that_is_cut_off_or_damaged_has_its_line(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 3 * LINES_BURST
    monkeypatch.setattr(log_output, "EVIDENCE_LIMIT_LINES", limit)
    logger = logging.getLogger(EVIDENCE)
    logger.addHandler(lines)
    lines.addFilter(LineBudget())
    try:
        for number in range(2 * LINES_BURST):
            logger.error("cut the torn end of %s at byte %d", f"file{number}", number)
        assert len(lines.texts) == 2 * LINES_BURST
        for _ in range(2 * REPETITIONS_SHOWN):
            logger.error("cut the torn end of %s at byte %d", "file0", 0)
        assert lines.texts.count("cut the torn end of file0 at byte 0") == REPETITIONS_SHOWN
        for number in range(2 * LINES_BURST, 2 * limit):
            logger.error("cut the torn end of %s at byte %d", f"file{number}", number)
        assert len(lines.texts) < limit + 2 * REPETITIONS_SHOWN, "a disk is not filled by them"
    finally:
        logger.removeHandler(lines)


def test_events_of_all_buckets_at_once_are_counted_even_as_evidence(lines: Lines) -> None:
    logger = logging.getLogger(EVIDENCE)
    logger.addHandler(lines)
    try:
        for number in range(2000):
            logger.error("%s cannot be opened: %s", f"bucket {number}", "no room", extra={"is_counted": True})
        assert len(lines.texts) == REPETITIONS_SHOWN
    finally:
        logger.removeHandler(lines)


def test_counts_are_written_when_the_process_ends(tmp_path: Path) -> None:
    root, logger = logging.getLogger(), logging.getLogger("test.repetitions")
    before, level = list(root.handlers), root.level
    root.handlers = []
    try:
        set_up_logging("tablet-0", "info", tmp_path)
        for number in range(REPETITIONS_SHOWN + 7):
            logger.warning("table %d failed", number)
        root.handlers[0].close()
    finally:
        root.handlers = before
        root.setLevel(level)
    text = (tmp_path / "tablet-0.log").read_text()
    assert "7 more lines like this one in 0 s: table 11 failed [among them: 5, 6, 7, 8, 9, 10, 11]" in text


def test_every_module_that_logs_failures_is_counted_in_embedded_servers() -> None:
    server = Path(fluss.__file__).parent / "server"
    missing = []
    for folder in ("catalog", "coordinator", "network", "storage", "tablet"):
        for path in (server / folder).rglob("*.py"):
            text = path.read_text()
            named = re.search(r"getLogger\((?:__name__|\"(.+?)\")\)", text)
            if named is None or not re.search(r"logger\.(warning|error|exception)\(", text):
                continue
            name = named[1] or ".".join(("fluss", *path.relative_to(server.parent).with_suffix("").parts))
            missing += [name] if name not in BUSY_LOGGERS else []
    assert missing == []
