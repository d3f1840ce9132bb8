"""How `dev.py` behaves on a terminal while it starts and sets up: few lines, no traceback."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from tools.environment import ROOT
from tools.waiting import patience

SECONDS = patience(60)
INSTALLS = """
import sys
from pathlib import Path
from tools.environment import _install, _ticking

with _ticking(lambda end: print("working", end=end, flush=True)):
    _install(Path(sys.executable), "--offline", "pytest")
print("done")
"""


def on_a_terminal(*command: str) -> str:
    """Return the output of a program that succeeds."""
    screen, end = pty.openpty()
    try:
        subprocess.run(command, cwd=ROOT, stdout=end, stderr=end, timeout=SECONDS, check=True)
        return os.read(screen, 1 << 16).decode()
    finally:
        os.close(end)
        os.close(screen)


def test_installing_is_one_line_whatever_uv_has_to_say() -> None:
    last_drawn = on_a_terminal(sys.executable, "-c", INSTALLS).rpartition("\x1b[K")[2]
    assert last_drawn.splitlines() == ["working", "done"]


def test_ctrl_c_while_modules_are_imported(tmp_path: Path) -> None:
    # Replaces a module that dev.py imports by one that raises the signal during its import. The signal is set as on a
    # terminal: where the tests run in the background, programs start with it ignored.
    as_on_a_terminal = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    interrupting = f"import signal\n\n{as_on_a_terminal}\nsignal.raise_signal(signal.SIGINT)\n"
    (tmp_path / "venv.py").write_text(interrupting, encoding="utf-8")
    command = [sys.executable, "dev.py", "demo"]
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
