"""Sockets, remembered ports, advertised addresses and the lock of the data directory."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fluss.errors import FlussError
from fluss.server.config.server_config import ServerConfig
from fluss.server.process.data_directory import DataDirectory
from fluss.server.process.sockets import ServerSockets, open_sockets


def make_config(directory: Path, **options: str) -> ServerConfig:
    overrides = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    overrides.setdefault("bind.listeners", "FLUSS://127.0.0.1:0, CLIENT://127.0.0.1:0")
    return ServerConfig.load(None, {"data.dir": str(directory), **overrides})


@contextmanager
def opened(config: ServerConfig) -> Iterator[ServerSockets]:
    directory = DataDirectory(config.data_dir)
    try:
        sockets = open_sockets(config, directory)
        yield sockets
        sockets.close()
    finally:
        directory.close()


def test_ports_are_free_ones_and_the_same_after_a_restart_even_with_more_tablets(tmp_path: Path) -> None:
    with opened(make_config(tmp_path, server__tablets="2")) as sockets:
        first = sockets.topology
    with opened(make_config(tmp_path, server__tablets="3")) as sockets:
        second = sockets.topology
    assert second.coordinator == first.coordinator
    assert list(second.tablets[:2]) == list(first.tablets)
    assert second.tablet_count == 3
    ports = [port for role in (second.coordinator, *second.tablets) for _, port in role.values()]
    assert len(set(ports)) == 8


def test_a_remembered_port_that_is_in_use_is_given_up(tmp_path: Path) -> None:
    with opened(make_config(tmp_path)) as sockets:
        port = sockets.topology.tablets[0]["FLUSS"][1]
    with socket.create_server(("127.0.0.1", port)), opened(make_config(tmp_path)) as sockets:
        assert sockets.topology.tablets[0]["FLUSS"][1] != port


@pytest.mark.parametrize("content", ["", "[1]", '{"coordinator": 3}', '{"coordinator": {"FLUSS": "x"}}', "\x00"])
def test_a_damaged_ports_file_is_ignored(tmp_path: Path, content: str) -> None:
    (tmp_path / "ports.json").write_text(content)
    with opened(make_config(tmp_path)) as sockets:
        assert sockets.topology.coordinator["FLUSS"][1] > 0


def test_a_requested_port_that_is_in_use_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = make_config(tmp_path, bind__listeners=f"FLUSS://127.0.0.1:{port}")
        with (
            pytest.raises(FlussError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"),
            opened(config),
        ):
            pass
    with opened(config):
        pass


def test_an_unknown_host_is_an_error(tmp_path: Path) -> None:
    config = make_config(tmp_path, bind__listeners="FLUSS://no-such-host.invalid:0")
    with pytest.raises(FlussError, match=r"cannot resolve host 'no-such-host.invalid'"), opened(config):
        pass


def test_tablet_ports_can_be_fixed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        first = probe.getsockname()[1]
    if first > 65000:
        first = 20000
    config = ServerConfig.load(
        None,
        {
            "data.dir": str(tmp_path),
            "bind.listeners": "FLUSS://127.0.0.1:0",
            "tablet-server.port": str(first),
        },
    )
    with opened(config) as sockets:
        assert sockets.topology.tablets[0]["FLUSS"] == ("127.0.0.1", first)


def test_advertised_addresses(tmp_path: Path) -> None:
    config = make_config(tmp_path, advertised__listeners="CLIENT://fluss.example.org:443")
    with opened(config) as sockets:
        topology = sockets.topology
        assert topology.coordinator["CLIENT"] == ("fluss.example.org", 443)
        assert topology.coordinator["FLUSS"][0] == "127.0.0.1"
        host, port = topology.tablets[0]["CLIENT"]
        assert host == "fluss.example.org"
        assert port not in (0, 443)
        assert "CLIENT://fluss.example.org:443" in sockets.describe()


def test_a_wildcard_listener_tells_clients_a_real_address(tmp_path: Path) -> None:
    with opened(make_config(tmp_path, bind__listeners="FLUSS://0.0.0.0:0")) as sockets:
        assert sockets.topology.coordinator["FLUSS"][0] not in ("0.0.0.0", "")


def test_the_directory_is_locked_while_it_is_open_and_names_the_owner(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "new" / "directory")
    with pytest.raises(FlussError, match=f"is in use by another server \\(process {os.getpid()}\\)"):
        DataDirectory(tmp_path / "new" / "directory")
    directory.close()
    directory.close()
    DataDirectory(tmp_path / "new" / "directory").close()


def test_the_lock_file_of_a_dead_server_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "LOCK").write_text("1\n")
    DataDirectory(tmp_path).close()


def test_a_file_instead_of_the_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FlussError, match=r"cannot use data directory .*: File exists"):
        DataDirectory(tmp_path / "file")
