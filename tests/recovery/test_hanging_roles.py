"""A role that hangs is detected, killed and replaced: clients only wait a little longer."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from tools.servers.server_process import ServerProcess
from tools.waiting import wait_until

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.mark.parametrize("role", ["tablet-0", pytest.param("coordinator", marks=pytest.mark.all)])
def test_calls_go_on_when_the_role_is_back(tmp_path: Path, role: str) -> None:
    with (
        ServerProcess(tmp_path / "data", tablets=1, config={"server.hang-timeout": "4 s"}) as server,
        fluss.connect(server.address) as db,
    ):
        db.create_table("t", SCHEMA, bucket_count=1)
        db.append("t", [{"id": 0}])
        hanging = server.process_of(role)
        assert hanging is not None
        hanging.suspend()
        if role == "coordinator":
            wait_until(lambda: server.process_of(role) not in (None, hanging), "another one runs")
            db.create_table("u", SCHEMA, bucket_count=1)
        db.append("t", [{"id": 1}])
        assert db.to_arrow("t").column("id").to_pylist() == [0, 1]
        assert not hanging.is_running()
    assert f"{role} (process {hanging.pid}): no heartbeat for" in server.log_text()


@pytest.mark.all
def test_the_default_is_stacks_after_15_seconds_and_the_end_after_30(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", tablets=1) as server:
        hanging = server.process_of("tablet-0")
        assert hanging is not None
        hanging.suspend()
        wait_until(lambda: "serves again" in server.log_text(), "another one runs")
        assert server.process_of("tablet-0") not in (None, hanging)
    silent = [int(each) for each in re.findall(r"no heartbeat for (\d+) s", server.log_text())]
    assert [seconds // 15 for seconds in silent] == [1, 2], "a busy machine may look a little later, not earlier"
