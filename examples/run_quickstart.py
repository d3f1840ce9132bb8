"""`python3 dev.py clients`: our client on a server, before and after a restart; then the published client pyfluss.

pyfluss has the same import name as this project, so it has its own environment, created on the first run. If it cannot
be fetched, the demo prints the reason and continues without it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.peers.cache import PeerMissingError
from tools.peers.pyfluss_environment import pyfluss_python
from tools.servers.server_process import ServerProcess

QUICKSTART = Path(__file__).with_name("quickstart.py")
WITH_PYFLUSS = Path(__file__).with_name("with_pyfluss.py")
ROWS_PER_RUN = 3


def run_client(name: str, python: Path, program: Path, server: ServerProcess) -> int:
    """Run a client; return the number of rows it saw."""
    started_at = time.monotonic()
    done = subprocess.run(
        [str(python), str(program), server.address],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=program.parent,
    )
    if done.returncode < 0 and done.stdout:
        # Native threads of a client may crash at the end of the interpreter; its output is complete by then.
        print(f"  {name} was killed by signal {-done.returncode} after it had finished")
    elif done.returncode != 0:
        text = f"{name} failed with code {done.returncode}:\n{done.stderr}\nthe server's log:\n{server.log_text()}"
        raise SystemExit(text)
    print(f"  {name} ({time.monotonic() - started_at:.1f} s): {done.stdout.strip()}")
    return done.stdout.count("Ada") * ROWS_PER_RUN


def main() -> int:
    """Run the demo; return 0 if all rows were seen."""
    runs = [("our client", Path(sys.executable), QUICKSTART)] * 2
    try:
        runs.append(("pyfluss", pyfluss_python(), WITH_PYFLUSS))
    except PeerMissingError as missing:
        print(f"without pyfluss: {missing}")
    with tempfile.TemporaryDirectory(prefix="fluss-demo-") as folder:
        for number, run in enumerate(runs, start=1):
            with ServerProcess(Path(folder) / "data", tablets=2) as server:
                print(f"{server.ready_line} after {server.ready_seconds:.1f} s")
                rows = run_client(*run, server)
                if rows != number * ROWS_PER_RUN:
                    print(f"expected {number * ROWS_PER_RUN} rows, got {rows}")
                    return 1
            print("  server stopped")
    print(f"demo: all {len(runs)} runs saw every row, including those from before a restart")
    return 0


if __name__ == "__main__":
    sys.exit(main())
