"""A tablet that can start no more threads: writes are refused with an error, and work again when it can."""

from __future__ import annotations

import resource
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from fluss.errors import FlussError
from tools.servers.server_process import ServerProcess
from tools.waiting import wait_until

SCHEMA = pa.schema([("id", pa.int64())])
# A new thread maps its stack, 8 MiB in most systems, so it fails; small objects find room in what Python has already.
SPARE_BYTES = 2 << 20


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process are set on Linux only")
def test_writes_fail_while_no_thread_can_be_started_and_then_work_again(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data", tablets=1) as server,
        fluss.connect(server.address) as db,
        fluss.connect(server.address, writer_retries=1) as impatient,
    ):
        db.create_table("t", SCHEMA, bucket_count=1)
        tablet = server.process_of("tablet-0")
        assert tablet is not None
        limit = tablet.memory_info().vms + SPARE_BYTES
        before = resource.prlimit(tablet.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        with pytest.raises(FlussError) as refused:
            impatient.append("t", [{"id": 1}])
        resource.prlimit(tablet.pid, resource.RLIMIT_AS, before)
        assert "thread" in str(refused.value)
        assert tablet.is_running()

        # A bucket that could not be opened is tried again after a pause.
        def appended() -> bool:
            try:
                db.append("t", [{"id": 2}])
            except FlussError:
                return False
            return True

        wait_until(appended, "the append succeeds")
        assert db.to_arrow("t").column("id").to_pylist() == [2]
