"""Start a server, run quickstart.py with pyfluss, restart the server, run it again: `python3 dev.py demo`.

pyfluss has the same import name as this project, so it lives in an environment of its own, made on the first run.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.peers import PeerMissingError
from tests.support.pyfluss_environment import pyfluss_python
from tests.support.server_process import ServerProcess

QUICKSTART = Path(__file__).with_name("quickstart.py")


def run_client(python: Path, server: ServerProcess) -> str:
    """One run of the client; returns what it printed."""
    started_at = time.monotonic()
    done = subprocess.run(
        [str(python), str(QUICKSTART), server.address],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=QUICKSTART.parent,
    )
    if done.returncode != 0:
        raise SystemExit(f"the client failed:\n{done.stderr}\nthe server said:\n{server.log_text()}")
    print(f"  client ({time.monotonic() - started_at:.1f} s): {done.stdout.strip()}")
    return done.stdout


def main() -> int:
    """The demo; 0 if everything was as it should be."""
    try:
        python = pyfluss_python()
    except PeerMissingError as missing:
        print(f"the demo needs pyfluss: {missing}")
        return 1
    with tempfile.TemporaryDirectory(prefix="fluss-demo-") as folder:
        for wanted_rows in (3, 6):
            with ServerProcess(Path(folder) / "data", tablets=2) as server:
                print(f"{server.ready_line} after {server.ready_seconds:.1f} s")
                rows = run_client(python, server).count("Ada") * 3
                if rows != wanted_rows:
                    print(f"expected {wanted_rows} rows, got {rows}")
                    return 1
            print("  server stopped")
    print("demo: both runs saw every row, also after the restart")
    return 0


if __name__ == "__main__":
    sys.exit(main())
