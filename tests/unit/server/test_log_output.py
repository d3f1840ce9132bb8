"""Lines of the server's log: the same one for many tables is a few lines and a count."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from fluss.server.log_output import REPETITION_WINDOW_SECONDS, REPETITIONS_SHOWN, Repetitions, count_repetitions


class Lines(logging.Handler):
    """Keeps what was written."""

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
    lines.repetitions.tell()
    lines.repetitions.tell()
    assert len(lines.texts) == REPETITIONS_SHOWN + 2
    assert lines.texts[-1].startswith(
        f"{2000 - REPETITIONS_SHOWN} more lines like this one in 60 s: table t1999 failed"
    )
    assert "among them: t5, t6, " in lines.texts[-1]
    logger.warning("table %s failed: %s", "again", "no room")
    assert lines.texts[-1] == "table again failed: no room"


def test_the_next_line_of_any_kind_brings_the_count_along(lines: Lines) -> None:
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
