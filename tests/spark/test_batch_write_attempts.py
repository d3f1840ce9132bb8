"""Tasks that are tried again after they wrote rows, and tasks that run twice at once, leave no row twice.

A cluster of separate processes runs the job: Spark in one process neither repeats tasks nor speculates.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from tests.spark.attempts_job import FAILING, PARTITIONS, ROWS, SLOW
from tests.support.spark_cluster import SparkCluster
from tests.support.targets import running_target

REPOSITORY = Path(__file__).parents[2]
JOB_SECONDS = 500
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.driver.memory": "700m",
    "spark.executor.memory": "700m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}
TABLES = ("standalone", "apache", "careless")
SCHEMA = pa.schema([pa.field("id", pa.int64(), False)])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that wrote to log tables of both servers, and to one with as little care as there is."""
    folder = tmp_path_factory.mktemp("attempts")
    targets: dict[str, dict[str, str]] = {}
    for name in TABLES:
        target = running_target("apache" if name == "apache" else "standalone")
        path = f"fluss.attempts_{uuid.uuid4().hex[:8]}"
        with fluss.connect(target.config()) as db:
            db.create_table(path, SCHEMA, bucket_count=2)
        targets[name] = {"bootstrap.servers": target.bootstrap_servers, "table": path}
    targets["careless"]["delivery"] = "at-least-once"
    with SparkCluster(folder, environment={"PYTHONPATH": str(REPOSITORY)}) as cluster:
        job = {"master": cluster.master, "settings": SETTINGS, "targets": targets, "folder": str(folder)}
        command = [sys.executable, "-m", "tests.spark.attempts_job", json.dumps(job)]
        done = subprocess.run(command, cwd=REPOSITORY, timeout=JOB_SECONDS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "targets.json").write_text(json.dumps(targets))
    return folder


def attempts(folder: Path, name: str) -> dict[int, int]:
    files = [path.name.split("-") for path in (folder / name).glob("attempt-*")]
    return {partition: sum(int(file[1]) == partition for file in files) for partition in range(PARTITIONS)}


@pytest.mark.parametrize("name", TABLES)
def test_attempts_leave_no_row_twice(written: Path, name: str) -> None:
    options = json.loads((written / "targets.json").read_text())[name]
    tried = attempts(written, name)
    assert tried[FAILING] >= 2, "the failing task was not repeated"
    assert tried[SLOW] >= 2, "the slow task did not run twice"
    with fluss.connect(options["bootstrap.servers"]) as db:
        ids = sorted(db.scan(options["table"]).column("id").to_pylist())
    if name == "careless":
        assert len(ids) > ROWS, "attempts that failed had written nothing yet: then the others show nothing either"
    else:
        assert ids == list(range(ROWS))
