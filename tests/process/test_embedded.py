"""The server inside a program."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import fluss
from tests.support.tables.log_workload import create_table, leaders
from tools.servers.wire_client import WireClient
from tools.waiting import patience


def test_it_serves_inside_the_block_and_stops_after_it(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with fluss.embedded(tmp_path / "data", tablets=3) as cluster:
        assert "serving" in repr(cluster)
        create_table(cluster.bootstrap_servers, "t", 3)
        assert len(set(leaders(cluster.bootstrap_servers, "t").values())) == 3
        address = cluster.bootstrap_servers
    assert "closed" in repr(cluster)
    assert not set(threading.enumerate()) - before
    with pytest.raises(ConnectionRefusedError):
        WireClient.connect(address)
    cluster.close()


def test_tables_and_the_address_survive_a_restart(tmp_path: Path) -> None:
    with fluss.embedded(str(tmp_path)) as cluster:
        address = cluster.bootstrap_servers
        table_id = create_table(address, "t", 1)
    with fluss.embedded(tmp_path) as cluster:
        assert cluster.bootstrap_servers == address
        with WireClient.connect(address) as client:
            assert client.metadata(("fluss", "t")).table_metadata[0].table_id == table_id


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with fluss.embedded(tmp_path) as cluster:
        with pytest.raises(fluss.FlussError, match="is in use by another server") as caught:
            fluss.embedded(tmp_path)
        assert caught.value.error_code == fluss.ErrorCode.INVALID_CONFIG_EXCEPTION
        with WireClient.connect(cluster.bootstrap_servers) as client:
            assert client.metadata().tablet_servers


def test_options_and_listeners(tmp_path: Path) -> None:
    config = {
        "bind.listeners": "FLUSS://127.0.0.1:0, CLIENT://127.0.0.1:0",
        "security.protocol.map": "CLIENT:sasl",
        "security.sasl.enabled.mechanisms": "plain",
        "security.sasl.plain.credentials": "ada:lovelace",
    }
    with fluss.embedded(tmp_path, config=config) as cluster:
        with WireClient.connect(cluster.listener_address("CLIENT")) as client:
            client.authenticate("ada", "lovelace")
            assert client.metadata().tablet_servers
        with pytest.raises(fluss.FlussError, match="there is no listener 'X'; the listeners are FLUSS, CLIENT"):
            cluster.listener_address("X")


def test_wrong_options_leave_nothing_behind(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with pytest.raises(fluss.FlussError, match=r"the nearest is 'log\.flush'"):
        fluss.embedded(tmp_path / "data", config={"log.flusch": "always"})
    assert not set(threading.enumerate()) - before
    assert not (tmp_path / "data").exists()


def test_a_failed_start_unlocks_the_directory(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite").write_bytes(b"this is not a database, " * 100)
    with pytest.raises(fluss.FlussError, match=r"catalog\.sqlite"):
        fluss.embedded(tmp_path)
    (tmp_path / "catalog.sqlite").unlink()
    fluss.embedded(tmp_path).close()


def test_it_runs_beside_an_event_loop_of_the_program(tmp_path: Path) -> None:
    """As in a notebook, where a loop runs already in the calling thread."""

    async def main() -> int:
        with fluss.embedded(tmp_path) as cluster:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, create_table, cluster.bootstrap_servers, "t", 1)

    assert asyncio.run(main()) >= 0


def test_a_program_that_forgets_to_close_still_ends(tmp_path: Path) -> None:
    program = f"import fluss; cluster = fluss.embedded({str(tmp_path)!r}); print(cluster.bootstrap_servers)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=patience(120))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    fluss.embedded(tmp_path).close()


def test_it_runs_on_plain_asyncio_too(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['uvloop'] = None\n"
        "import fluss\n"
        "from tests.support.tables.log_workload import create_table\n"
        f"with fluss.embedded({str(tmp_path)!r}) as cluster:\n"
        "    print(type(cluster._loop).__module__, create_table(cluster.bootstrap_servers, 't', 1) >= 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=patience(120))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("asyncio")
    assert done.stdout.strip().endswith("True")
