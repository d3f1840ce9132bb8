"""Opens all listening sockets of a server before any role starts, and derives the topology from them.

A listener with port 0 takes the port of the last run if that is still free, so that clients that know the old addresses
find the server after a restart; otherwise any free port. The supervisor or the embedding program opens the sockets;
roles only accept on them.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from fluss.errors import FlussError
from fluss.server.apis.topology import Address, Topology
from fluss.server.config.server_config import ServerConfig
from fluss.server.network.server import BoundListener
from fluss.server.process.data_directory import DataDirectory
from fluss.server.runtime.listeners import Listener, bind, format_address, is_wildcard, local_address

logger = logging.getLogger(__name__)

COORDINATOR_ROLE = "coordinator"


def tablet_role(server_id: int) -> str:
    """Return the name of a tablet in messages, logs and ``ports.json``."""
    return f"tablet-{server_id}"


@dataclass(frozen=True)
class ServerSockets:
    """The bound listeners by role name, and the topology that metadata answers give to clients."""

    roles: Mapping[str, tuple[BoundListener, ...]]
    topology: Topology

    def close(self) -> None:
        for listeners in self.roles.values():
            for listener in listeners:
                listener.socket.close()

    def close_all_but(self, role: str) -> None:
        """Close the sockets of all other roles; the first step of a forked child."""
        for name, listeners in self.roles.items():
            if name != role:
                for listener in listeners:
                    listener.socket.close()

    def describe(self) -> str:
        """Return the addresses of all listeners, for users and scripts: ``FLUSS://127.0.0.1:9123, ...``."""
        addresses = self.topology.coordinator.items()
        return ", ".join(f"{name}://{format_address(host, port)}" for name, (host, port) in addresses)


def open_sockets(config: ServerConfig, directory: DataDirectory) -> ServerSockets:
    """Bind the listeners of all roles. On an error, close those that were bound."""
    remembered = directory.read_ports()
    roles: dict[str, tuple[BoundListener, ...]] = {}
    opened: list[BoundListener] = []
    try:
        for role, wanted in _wanted_ports(config).items():
            first = len(opened)
            for listener in config.listeners:
                last_port = remembered.get(role, {}).get(listener.name, 0)
                bound = _open(listener, wanted[listener.name], last_port)
                is_internal = listener.name == config.internal_listener
                opened.append(BoundListener(listener.name, listener.protocol, bound, is_internal))
            roles[role] = tuple(opened[first:])
    except BaseException:
        for listening in opened:
            listening.socket.close()
        raise
    directory.write_ports(
        {role: {bound.name: _port(bound) for bound in bound_listeners} for role, bound_listeners in roles.items()}
    )
    return ServerSockets(roles, _topology(config, roles))


def _wanted_ports(config: ServerConfig) -> dict[str, dict[str, int]]:
    """Return the ports to bind, as role -> listener -> port; 0 for any free port."""
    wanted = {COORDINATOR_ROLE: {listener.name: listener.port for listener in config.listeners}}
    for server_id in range(config.tablet_count):
        first = config.tablet_first_port and config.tablet_first_port + server_id * len(config.listeners)
        wanted[tablet_role(server_id)] = {
            listener.name: first and first + place for place, listener in enumerate(config.listeners)
        }
    return wanted


def _open(listener: Listener, wanted_port: int, last_port: int) -> socket.socket:
    if wanted_port == 0 and last_port != 0:
        try:
            return bind(listener, last_port)
        except FlussError:
            logger.info("port %d of the last run is in use, listener %s gets another one", last_port, listener.name)
    return bind(listener, wanted_port)


def _port(bound: BoundListener) -> int:
    return int(bound.socket.getsockname()[1])


def _topology(config: ServerConfig, roles: Mapping[str, tuple[BoundListener, ...]]) -> Topology:
    tablets = [roles[tablet_role(server_id)] for server_id in range(config.tablet_count)]
    return Topology(
        coordinator=_advertised(config, roles[COORDINATOR_ROLE], is_coordinator=True),
        tablets=tuple(_advertised(config, bound, is_coordinator=False) for bound in tablets),
    )


def _advertised(
    config: ServerConfig, bound_listeners: tuple[BoundListener, ...], is_coordinator: bool
) -> dict[str, Address]:
    """Addresses for clients. An advertised port is the coordinator's; tablets have their own ports on that host."""
    addresses: dict[str, Address] = {}
    for bound in bound_listeners:
        listener = config.listener(bound.name)
        host = listener.advertised_host
        if host is None:
            host = local_address(listener.host)
            if is_coordinator and is_wildcard(listener.host):
                logger.warning(
                    "listener %s is bound to all interfaces and advertised as %s; advertised.listeners changes that",
                    bound.name,
                    host,
                )
        port = listener.advertised_port if is_coordinator else None
        addresses[bound.name] = (host, port or _port(bound))
    return addresses
