"""`fluss server` as real processes: ready line, restarts, kills, locks, stops, and messages about mistakes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import socket
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

import fluss
from fluss.cli.server import ENOUGH_OPEN_FILES
from fluss.errors import ErrorCode, FlussError
from fluss.protocol.api_keys import ApiKey
from tests.support.tables.log_workload import create_table, leaders
from tools.servers.server_process import ServerFailedError, ServerProcess, run_command
from tools.servers.wire_client import WireClient
from tools.waiting import patience, wait_until

SASL_YAML = """\
bind.listeners: FLUSS://127.0.0.1:0, CLIENT://127.0.0.1:0
internal.listener.name: FLUSS
security.protocol.map: CLIENT:sasl
security.sasl.enabled.mechanisms: plain
security.sasl.plain.jaas.config: org.apache.fluss.security.auth.sasl.plain.PlainLoginModule required \
user_admin="admin-secret" user_alice="alice-secret";
super.users: User:admin
zookeeper.address: 127.0.0.1:12181
tablet-server.id: 0
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data", tablets=2) as running:
        create_table(running.address, "t", 2)
        yield running


def tablet_addresses(server: ServerProcess) -> dict[int, tuple[str, int]]:
    with WireClient.connect(server.address) as client:
        return {node.node_id: (node.host, node.port) for node in client.metadata().tablet_servers}


def answers(address: tuple[str, int]) -> bool:
    with WireClient(*address) as client:
        return len(client.api_versions().api_versions) > 0


def test_the_ready_line_has_the_address_the_tablets_and_the_directory(server: ServerProcess) -> None:
    assert server.ready_line == f"fluss server ready: FLUSS://{server.address} (tablets 2, data {server.data})"
    addresses = tablet_addresses(server)
    assert sorted(addresses) == [0, 1]
    assert all(answers(address) for address in addresses.values())
    assert set(leaders(server.address, "t").values()) == set(addresses.values())


@pytest.mark.parametrize("role", ["tablet-0", "coordinator"])
def test_a_killed_role_is_back_on_the_same_port_and_clients_only_wait(server: ServerProcess, role: str) -> None:
    before = tablet_addresses(server)
    host, _, port = server.address.rpartition(":")
    address = before[0] if role == "tablet-0" else (host, int(port))
    killed = server.kill_role(role)
    # The socket belongs to the supervisor: this connection is accepted by the kernel, and served by the successor.
    assert answers(address)
    successor = server.process_of(role)
    assert successor is not None
    assert successor.pid != killed
    assert tablet_addresses(server) == before


def test_a_second_server_on_the_same_directory_is_refused_and_the_first_continues(server: ServerProcess) -> None:
    done = run_command(["server", "--data", str(server.data), "--bind", "127.0.0.1:0"])
    assert done.returncode == 1
    assert f"is in use by another server (process {server.process.pid})" in done.stderr
    assert "Traceback" not in done.stderr
    assert tablet_addresses(server)


@pytest.mark.all  # it waits for children of a server that has just died
def test_a_deleted_lock_file_does_not_let_a_second_server_in(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as first:
        (tmp_path / "data" / "LOCK").unlink()
        done = run_command(["server", "--data", str(first.data), "--bind", "127.0.0.1:0"])
        assert done.returncode == 1
        assert "is in use by another server (process unknown)" in done.stderr
        assert tablet_addresses(first)


def test_processes_have_names_and_few_threads(server: ServerProcess) -> None:
    assert psutil.Process(server.process.pid).num_threads() == 1
    for role in ("coordinator", "tablet-0", "tablet-1"):
        assert server.process_of(role) is not None


def test_servers_do_without_pandas(server: ServerProcess) -> None:
    """Arrow loads it with the first array of Python values, so the first upsert would wait for that."""
    if not sys.platform.startswith("linux"):
        pytest.skip("psutil tells what another process has mapped on Linux only")
    rows = [{"id": number, "name": f"n{number}"} for number in range(50)]
    schema = fluss.Schema(pa.schema([("id", pa.int64()), ("name", pa.string())]), primary_keys=["id"])
    with fluss.connect(server.address) as db:
        db.create_table("fluss.light", schema, bucket_count=4)
        db.upsert("fluss.light", rows)
        db.delete("fluss.light", [{"id": number} for number in range(25)])
        assert sorted(row["id"] for row in db.to_arrow("fluss.light").to_pylist()) == list(range(25, 50))
    for role in ("coordinator", "tablet-0", "tablet-1"):
        process = server.process_of(role)
        assert process is not None
        loaded = [mapped.path for mapped in process.memory_maps()]
        assert any("pyarrow" in path for path in loaded)
        assert not any("pandas" in path for path in loaded)


def test_the_limit_on_open_files_is_raised_to_the_maximum(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("psutil reads the limits of other processes on Linux only")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    # This process must still be able to start another one, whatever earlier tests have left open.
    in_use = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(in_use + 256, before[1]), before[1]))
    try:
        server = ServerProcess(tmp_path / "data")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    with server:
        tablet = server.process_of("tablet-0")
        assert tablet is not None
        hard = before[1]
        expected = ENOUGH_OPEN_FILES if hard == resource.RLIM_INFINITY else hard
        assert tablet.rlimit(psutil.RLIMIT_NOFILE)[0] == expected


def test_tables_and_ports_survive_a_clean_stop_and_a_kill(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", bind="127.0.0.1:0") as server:
        table_id = create_table(server.address, "kept", 1)
        first = (server.address, tablet_addresses(server))
        assert server.stop() == 0
        server.start()
        assert (server.address, tablet_addresses(server)) == first
        server.kill()
        server.start()
        assert (server.address, tablet_addresses(server)) == first
        with WireClient.connect(server.address) as client:
            assert client.metadata(("fluss", "kept")).table_metadata[0].table_id == table_id
        assert "Traceback" not in server.log_text()


def test_a_clean_stop_is_quick_and_ends_all_processes_even_with_clients_connected(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", tablets=2) as server:
        children = psutil.Process(server.process.pid).children()
        with WireClient.connect(server.address) as client, WireClient(*tablet_addresses(server)[0]) as other:
            client.api_versions()
            other.send_bytes(b"\x00\x00")  # a frame that will never be finished
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(patience(60)) == 0
        assert not any(child.is_running() for child in children)
        assert "killed" not in server.log_text()


def test_files_of_other_programs_do_not_prevent_a_start(tmp_path: Path) -> None:
    """A directory that the catalog does not know is put aside unchanged, and its id is not reused."""
    data = tmp_path / "data"
    with ServerProcess(data) as server:
        create_table(server.address, "before", 1)
    unknown = data / "data" / "gone" / "table-77" / "log-0"
    unknown.mkdir(parents=True)
    (unknown / "00000000000000000000.log").write_bytes(b"garbage")
    (data / "data" / "a file").write_text("not a directory")
    (data / "LOCK").write_text("999999999\n")
    (data / "ports.json").write_text("{")
    (data / "ports.json.new").write_text("{")
    with ServerProcess(data) as server:
        assert create_table(server.address, "t", 1) > 77
        assert "fluss repair orphans" in server.log_text()
    assert (data / "orphans" / "gone" / "table-77" / "log-0" / "00000000000000000000.log").read_bytes() == b"garbage"
    assert not unknown.exists()


def test_a_damaged_catalog_is_named_and_stops_the_start_at_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "catalog.sqlite").write_bytes(b"this is not a database, " * 100)
    with pytest.raises(ServerFailedError) as caught:
        ServerProcess(data)
    assert "catalog.sqlite" in str(caught.value)
    assert "the server stops" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--bind", "nonsense"], "--bind must be HOST:PORT, such as '127.0.0.1:9123' or '[::1]:9123', got 'nonsense'"),
        (["--bind", "127.0.0.1:99999"], "port must be at most 65535, got 99999"),
        (["--tablets", "0"], "option server.tablets: must be at least 1, got '0'"),
        (["--tablets", "two"], "option server.tablets: 'two' is not a whole number"),
        (["--config", "nowhere.yaml"], "cannot read configuration file nowhere.yaml: No such file or directory"),
        (["-o", "log.segment.filesize=1mb"], "the nearest is 'log.segment.file-size'"),
        (["-o", "log.flush"], "--option must be NAME=VALUE, got 'log.flush'"),
        (["--data", "/dev/null/x"], "cannot use data directory /dev/null/x: Not a directory"),
    ],
)
def test_mistakes_are_one_clear_line(tmp_path: Path, arguments: list[str], expected: str) -> None:
    done = run_command(["server", "--data", str(tmp_path), *arguments])
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("fluss server: ")
    assert expected in line


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_command(["server", "--data", str(tmp_path), "--bind", address])
    assert done.returncode == 1
    assert f"cannot listen on {address}: Address already in use" in done.stderr


def test_a_server_yaml_of_apache_fluss_with_sasl(tmp_path: Path) -> None:
    (tmp_path / "server.yaml").write_text(SASL_YAML)
    with ServerProcess(tmp_path / "data", "--config", str(tmp_path / "server.yaml"), bind=None) as server:
        assert list(server.addresses) == ["FLUSS", "CLIENT"]
        with WireClient.connect(server.addresses["CLIENT"]) as client:
            with pytest.raises(FlussError) as caught:
                client.metadata()
            assert caught.value.error_code == ErrorCode.AUTHENTICATE_EXCEPTION
            with pytest.raises(FlussError) as caught:
                client.authenticate("alice", "wrong-guess")
            assert caught.value.error_code == ErrorCode.AUTHENTICATE_EXCEPTION
            client.authenticate("alice", "alice-secret")
            (tablet,) = client.metadata().tablet_servers
        ports = json.loads((server.data / "ports.json").read_text())
        assert tablet.port == ports["tablet-0"]["CLIENT"]
        log = server.log_text()
    assert log.count("options without effect on one machine: tablet-server.id, zookeeper.address") == 1
    assert "secret" not in log
    assert "wrong-guess" not in log


def test_logs_go_to_a_file_per_process_on_request(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--log-dir", str(tmp_path / "logs"), "--log-level", "info") as server:
        server.kill_role("tablet-0")
        wait_until(
            lambda: "serves again" in (tmp_path / "logs" / "supervisor.log").read_text(), "the restart is logged"
        )
        coordinator = server.process_of("coordinator")
        assert coordinator is not None
        coordinator.send_signal(signal.SIGUSR1)
        stacks = tmp_path / "logs" / "coordinator.stacks.log"
        wait_until(lambda: "in run_role" in stacks.read_text(), "its stacks are there, too")
        assert server.log_text() == ""
    assert {path.name for path in (tmp_path / "logs").iterdir()} >= {"supervisor.log", "tablet-0.log"}


@pytest.mark.all
def test_a_role_whose_loop_is_blocked_shows_where_and_is_replaced(tmp_path: Path) -> None:
    """Another program holds the catalog's lock for longer than a role may send no heartbeat."""
    arguments = ("--log-dir", str(tmp_path / "logs"), "--log-level", "info")
    with ServerProcess(tmp_path / "data", *arguments, config={"server.hang-timeout": "6s"}) as server:
        with fluss.connect(server.address, request_timeout=1000) as db:
            with closing(sqlite3.connect(server.data / "catalog.sqlite", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with contextlib.suppress(fluss.FlussError):
                    db.create_table("t", pa.schema([("id", pa.int64())]))
                logs = tmp_path / "logs"
                log, stacks = logs / "supervisor.log", logs / "coordinator.stacks.log"
                wait_until(lambda: "killing it; nothing acknowledged is lost" in log.read_text(), "it is killed")
                assert re.search(r"coordinator \(process \d+\): no heartbeat", log.read_text())
                assert "database_file.py" in stacks.read_text(), "where it waited"
            wait_until(lambda: "coordinator serves again" in log.read_text(), "another one takes its place")
        with fluss.connect(server.address) as db:
            db.create_table("t2", pa.schema([("id", pa.int64())]))


def test_requests_in_flight_are_served_by_the_successor_of_a_killed_tablet(server: ServerProcess) -> None:
    """Many clients connect while the tablet is dead: none is refused."""
    address = tablet_addresses(server)[1]
    results: list[bool] = []
    server.kill_role("tablet-1")
    clients = [threading.Thread(target=lambda: results.append(answers(address))) for _ in range(20)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(patience(60))
    assert results == [True] * 20


def test_a_tablet_serves_and_lists_only_its_own_apis(server: ServerProcess) -> None:
    with WireClient(*tablet_addresses(server)[0]) as client:
        keys = {version.api_key for version in client.api_versions().api_versions}
    assert {ApiKey.PRODUCE_LOG, ApiKey.FETCH_LOG, ApiKey.LIST_OFFSETS} <= keys
    assert ApiKey.CREATE_TABLE not in keys


def test_the_lock_file_names_the_supervisor(server: ServerProcess) -> None:
    assert int((server.data / "LOCK").read_text()) == server.process.pid
    os.kill(server.process.pid, 0)
