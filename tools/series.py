"""`python3 dev.py series [--runs 5] [--busy 2] [--lane gate|fast|all]`: runs the gate repeatedly, in clean clones.

A gate that fails by chance costs three hours each time, so the chance is measured. Every run has its own clone and
environment, and four busy processes run beside the last `--busy` runs. The table at the end lists the failed tests.
All runs are of the commit that is HEAD when the first begins; if all are green, it is noted as green in this checkout.
`--keep DIR` keeps the output of the runs.

A suspicious test alone, a hundred times: `python3 dev.py series --runs 100 --busy 50 --only tests/x/test_y.py::test_z`
(in this checkout, without clones).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.environment import PYTHON, ROOT
from tools.testing import clean_commit, note_green

BUSY_PROCESSES = 4
FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
CLOSING = re.compile(r"^.*\d+ (?:passed|failed).* in .*$", re.MULTILINE)
LANE_OPTIONS = {"gate": [], "fast": ["--fast"], "all": ["--all"]}


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Run `count` processes that use all the processor time they can get."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def clean_clone(commit: str) -> Iterator[Path]:
    """A clone of the repository at `commit`, with the same neighbouring folders as the checkout."""
    folder = Path(tempfile.mkdtemp(prefix="fluss-series-"))
    try:
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "main")], check=True)
        subprocess.run(["git", "reset", "--quiet", "--hard", commit], cwd=folder / "main", check=True)
        if (ROOT.parent / "shared").exists():
            (folder / "shared").symlink_to(ROOT.parent / "shared")
        yield folder / "main"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def one_run(command: list[str], folder: Path, log: Path) -> tuple[int, float, str]:
    """Run a command; return exit code, seconds and output."""
    start = time.monotonic()
    with log.open("w+") as output:
        environment = {**os.environ, "CI": "true"}
        code = subprocess.run(command, cwd=folder, stdout=output, stderr=output, env=environment).returncode
        output.seek(0)
        return code, time.monotonic() - start, output.read()


def main(arguments: list[str]) -> int:
    """Run the gate or one test repeatedly, count the failures, and print the table."""
    parser = argparse.ArgumentParser(prog="dev.py series")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--busy", type=int, default=2, help="number of runs with busy processes beside them")
    parser.add_argument("--lane", choices=LANE_OPTIONS, default="gate")
    parser.add_argument("--only", metavar="TEST", help="run only this test, in this checkout")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the output of the runs in this folder")
    options = parser.parse_args(arguments)
    logs = options.keep or Path(tempfile.mkdtemp(prefix="fluss-series-logs-"))
    logs.mkdir(parents=True, exist_ok=True)
    commit = clean_commit()
    if not commit and not options.only:
        raise SystemExit("dev.py series: commit your changes first, because the clones would not have them")
    failures: Counter[str] = Counter()
    rows: list[str] = []
    greens = 0
    for number in range(1, options.runs + 1):
        is_busy = number > options.runs - options.busy
        log = logs / f"run-{number}.log"
        with contextlib.ExitStack() as stack:
            stack.enter_context(busy(BUSY_PROCESSES if is_busy else 0))
            if options.only:
                command, folder = [str(PYTHON), "-m", "pytest", "-m", "", options.only], ROOT
            else:
                folder = stack.enter_context(clean_clone(commit))
                command = ["bash", ".ci/run"] if options.lane == "gate" else []
                command = command or ["python3", "dev.py", "test", *LANE_OPTIONS[options.lane]]
            code, seconds, output = one_run(command, folder, log)
        greens += code == 0
        failed = sorted(set(FAILURE.findall(output)))
        failures.update(failed or ([] if code == 0 else [f"exit code {code} without a failed test"]))
        closing = CLOSING.findall(output)
        rows.append(f"| {number} | {'yes' if is_busy else 'no'} | {seconds / 60:.1f} | {code} | {closing[-1:]} |")
        print(rows[-1], flush=True)
    print(f"\ncommit {commit[:12] or 'not committed'}")
    print("\n| run | busy | minutes | exit code | closing line |\n|---|---|---|---|---|", *rows, sep="\n")
    print("\n| failed | runs |\n|---|---|", *(f"| {name} | {n} |" for name, n in failures.most_common()), sep="\n")
    print(f"\n{greens} of {options.runs} green; output in {logs}")
    if not failures and not options.only and options.lane != "fast":
        note_green(commit)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
