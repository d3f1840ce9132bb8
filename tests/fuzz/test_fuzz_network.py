"""Random and mutated frames against the network layer alone; every frame that is well framed gets one answer.

`FLUSS_FUZZ_FRAMES` sets how many; `python3 dev.py soak` sends a million.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from tests.fuzz.campaign import Attacker, run_campaign
from tests.fuzz.frame_maker import FrameMaker
from tests.support.servers.toy_network import ToyService
from tools.servers.wire_client import WireClient

ROOT = Path(__file__).resolve().parents[2]
FRAMES = int(os.environ.get("FLUSS_FUZZ_FRAMES", "50000"))
ATTACKERS = 4
MAX_GROWTH_BYTES = 48 * 1024 * 1024
MAX_LOG_BYTES = 200_000


def _attack(tmp_path: Path, frame_count: int) -> None:
    log_path = tmp_path / "server.log"
    with log_path.open("wb") as log:
        command = [sys.executable, "-m", "tests.fuzz.toy_server"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT)
    assert server.stdout is not None
    try:
        port = int(server.stdout.readline())
        keys = sorted({*map(int, ToyService().apis()), 1000, 1038})
        attackers = [
            Attacker(("127.0.0.1", port), FrameMaker(seed, keys, [b"r" * 100, b"r" * 5000, b"r" * 100_000]), seed)
            for seed in range(ATTACKERS)
        ]
        with WireClient("127.0.0.1", port) as witness:
            outcome = run_campaign(attackers, lambda: _call(witness), psutil.Process(server.pid), frame_count)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    print(outcome)
    assert outcome.witness_errors == []
    assert outcome.witness_calls > 0
    assert outcome.successes > frame_count // 100
    assert (outcome.unanswered_bursts, outcome.closed_by_server) == (0, 0)
    assert outcome.growth_bytes < MAX_GROWTH_BYTES
    assert log_path.stat().st_size < MAX_LOG_BYTES


def _call(witness: WireClient) -> None:
    assert witness.metadata(("fluss", "t")).coordinator_server.port == 1


def test_the_network_layer_survives(tmp_path: Path) -> None:
    _attack(tmp_path, FRAMES)
