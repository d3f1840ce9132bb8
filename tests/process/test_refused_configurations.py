"""Configuration errors are reported when the server starts, not when they cause damage."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from tools.servers.logins import TWO_LISTENERS
from tools.servers.ports import free_ports
from tools.servers.server_process import ServerProcess, run_command
from tools.waiting import wait_until


def test_permissions_that_would_never_be_checked_are_refused(tmp_path: Path) -> None:
    """One listener with a login looks safe, but it is the internal one, where everything is allowed."""
    options = {**TWO_LISTENERS, "bind.listeners": "FLUSS://127.0.0.1:0", "security.protocol.map": "FLUSS:sasl"}
    words = ["server", "--data", str(tmp_path / "data"), "--option", "authorizer.enabled=true"]
    for name, value in options.items():
        words += ["--option", f"{name}={value}"]
    result = run_command(words)
    assert result.returncode != 0
    assert "FLUSS is the only listener, and it is the internal one" in result.stderr
    assert "CLIENT:sasl" in result.stderr, "with the cure"
    assert not (tmp_path / "data").exists()


@pytest.mark.all
def test_an_unreachable_store_is_named(tmp_path: Path) -> None:
    endpoint = f"http://127.0.0.1:{free_ports(1)[0]}"
    options = {
        "remote.data.dir": "s3://bucket/path",
        "s3.endpoint": endpoint,
        "s3.access-key": "a",
        "s3.secret-key": "b",
        "s3.region": "r",
    }
    with ServerProcess(tmp_path / "data", config=options) as server:
        wait_until(lambda: "remote.data.dir s3://bucket/path cannot be used" in server.log_text(), "it is said")


@pytest.mark.all
def test_a_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with ServerProcess(tmp_path / "data", config={"remote.data.dir": str(tmp_path / "file" / "remote")}) as server:
        wait_until(lambda: "remote cannot be used" in server.log_text(), "it is said")


def test_each_process_logs_what_it_serves(tmp_path: Path) -> None:
    """Version, seconds, listeners, non-default options; a tablet also logs its buckets when they are open."""
    with ServerProcess(tmp_path / "data", tablets=1, config={"log.segment.file-size": "1mb"}) as server:
        with fluss.connect(server.address) as db:
            db.create_table("t", pa.schema([("id", pa.int64())]), bucket_count=2)
            db.append("t", [{"id": number} for number in range(100)])
        server.kill()
        server.start()
        opened = r"INFO tablet-0 \S+ opened [12] of [12] buckets with files in \d+\.\d s"
        wait_until(lambda: re.search(opened, server.log_text()) is not None, "the buckets are open")
        for role in ("coordinator", "tablet-0"):
            line = rf"INFO {role} \S+ flusspy (\S+) serves after \d+\.\d s on (\S+); options: (.*)"
            said = re.findall(line, server.log_text())
            assert len(said) == 2, "one line for each start"
            version, listeners, options = said[1]
            assert version == metadata.version("flusspy")
            assert listeners.startswith("FLUSS://127.0.0.1:")
            assert "log.segment.file-size=1mb" in options
            assert "log.flush" not in options
