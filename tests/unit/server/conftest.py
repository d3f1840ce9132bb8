"""Parts of the server alone, in a process in which the embedded server of other tests may still run."""

from __future__ import annotations

import logging

import pytest

from fluss.server.runtime.log_output import BUSY_LOGGERS


@pytest.fixture(autouse=True)
def _every_line_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded server counts repeated lines at loggers of the whole process, those of tests among them."""
    for name in BUSY_LOGGERS:
        monkeypatch.setattr(logging.getLogger(name), "filters", [])
