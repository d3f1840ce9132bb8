"""The bench of small requests that ask for much: it reaches every key. Its figures are not judged here."""

from __future__ import annotations

import pytest

from bench.amplification import main
from fluss.server.security.permissions import PERMISSIONS


@pytest.mark.all
def test_every_key_has_an_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--megabytes", "0.05", "--requests", "1", "--frame-megabytes", "0.5", "--frame-seconds", "0.1"]
    run = main(arguments)
    rows = {figure.row for figure in run.figures}
    for key in PERMISSIONS:
        for user in ("", ", without permission"):
            tried = [f"{role}, {key.name}{user}, still" in rows for role in ("coordinator", "tablet-0")]
            assert any(tried), f"{key.name}{user} was not sent"
    assert "frames, append" in rows
    assert "unfinished frames: " in capsys.readouterr().out
