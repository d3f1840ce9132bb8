"""The client loads most of itself at first use, which may happen in many threads at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from tests.support.runner.lanes import rounds
from tools.waiting import patience

THREADS = 8
AT_ONCE = 2
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    schema = pa.schema([("id", pa.int32()), ("name", pa.string())])
    with (
        fluss.embedded(tmp_path / "data") as cluster,
        fluss.connect(cluster.bootstrap_servers) as db,
    ):
        db.create_table("fluss.rows", schema, bucket_count=1)
        db.create_table("fluss.keys", schema, primary_keys=["id"], bucket_count=1)
        db.append("fluss.rows", [{"id": 0, "name": "n"}])
        db.upsert("fluss.keys", [{"id": 0, "name": "n"}])
        yield cluster.bootstrap_servers


def test_first_uses_in_many_threads(address: str) -> None:
    command = [sys.executable, "-m", "tests.process.first_uses_worker", address, "rows", "keys", str(THREADS)]

    def run(_: int) -> str:
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=patience(120))
        return done.stdout + (done.stderr if done.returncode else "")

    count = rounds(gate=4, all_lanes=20)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert list(pool.map(run, range(count))) == [""] * count
