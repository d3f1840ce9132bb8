"""kill -9 of a process that appends, repeatedly on the same bucket: no acknowledged batch is lost or doubled."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from fluss.server.storage.log.options import LogOptions
from tests.support.runner.lanes import rounds
from tests.support.storage.append_worker import WRITER
from tests.support.storage.bucket_logs import LogBench, batch_of, read_all

ROUNDS = rounds(gate=6, all_lanes=24)
PROJECT = Path(__file__).parents[2]


def _run_until_killed(directory: Path, segment_bytes: int, start: int, lines: int) -> int:
    """Kill a worker after it has printed a number of acknowledgements; returns the number after the last one."""
    command = [
        sys.executable,
        "-m",
        "tests.support.storage.append_worker",
        str(directory),
        str(segment_bytes),
        str(start),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT) as process:
        assert process.stdout is not None
        for _ in range(lines):
            assert process.stdout.readline(), "the worker died by itself"
        process.kill()
        # What it wrote before it died counts: those batches were acknowledged.
        rest = [line for line in process.stdout if line.endswith("\n")]
    return start + lines + len(rest)


def test_acknowledged_batches_survive_kills(tmp_path: Path) -> None:
    rng = random.Random(1)
    count = 0
    for _ in range(ROUNDS):
        options = LogOptions(segment_bytes=rng.choice((200, 5000, 1_000_000)))
        acknowledged = _run_until_killed(tmp_path, options.segment_bytes, count, rng.randint(1, 120))
        bench = LogBench(tmp_path, options=options)
        log = bench.open()
        stored = read_all(log)
        assert [header.base_offset for header, _ in stored] == list(range(len(stored)))
        assert [header.batch_sequence for header, _ in stored] == list(range(len(stored)))
        assert all(content[48:56] == number.to_bytes(8, "little") for number, (_, content) in enumerate(stored))
        assert len(stored) >= acknowledged
        last = batch_of(1, writer_id=WRITER, sequence=len(stored) - 1)
        assert bench.append_and_wait(log, last).duplicate
        count = len(stored)
        bench.close()
