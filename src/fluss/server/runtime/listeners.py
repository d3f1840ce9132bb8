"""Parses ``bind.listeners`` and related options into listeners, and binds their sockets.

The values are parsed by pure functions. Only `bind` touches the network: it returns sockets that already listen, so a
client that connects while a role starts (or is restarted by the supervisor, which keeps the sockets) waits in the
backlog instead of being refused.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fluss.errors import ErrorCode, FlussError

DEFAULT_LISTENER_NAME = "FLUSS"
DEFAULT_COORDINATOR_PORT = 9123
PROTOCOLS = ("PLAINTEXT", "SASL")

# Connections that the kernel completes before they are accepted. It caps the number at net.core.somaxconn.
BACKLOG_CONNECTIONS = 1024

_LISTENER = re.compile(r"\s*([A-Za-z0-9_.-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:/\[\]]*)):([0-9]+)\s*")
_HOST_PORT = re.compile(r"\s*(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:/\[\]]*)):([0-9]+)\s*")
_WILDCARD_HOSTS = frozenset({"0.0.0.0", "::"})


@dataclass(frozen=True)
class Listener:
    """One named listener: where it is bound, how clients log in, and the address that metadata answers give them."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"
    advertised_host: str | None = None
    advertised_port: int | None = None

    def __str__(self) -> str:
        return f"{self.name}://{format_address(self.host, self.port)}"


def _invalid(message: str) -> FlussError:
    return FlussError(message, ErrorCode.INVALID_CONFIG_EXCEPTION)


def format_address(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _checked_port(text: str, where: str) -> int:
    port = int(text)
    if port > 65535:
        raise _invalid(f"{where}: port must be at most 65535, got {port}")
    return port


def parse_address(text: str, option: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``. IPv6 hosts are in brackets; an empty host means all interfaces."""
    match = _HOST_PORT.fullmatch(text)
    if match is None:
        raise _invalid(f"{option} must be HOST:PORT, such as '127.0.0.1:9123' or '[::1]:9123', got {text!r}")
    return match[1] or match[2] or "0.0.0.0", _checked_port(match[3], option)


def parse_listeners(text: str, option: str) -> dict[str, tuple[str, int]]:
    """Parse ``NAME://host:port, ...`` into name -> (host, port), in order; names must be unique."""
    addresses: dict[str, tuple[str, int]] = {}
    for item in text.split(","):
        match = _LISTENER.fullmatch(item)
        if match is None:
            raise _invalid(f"{option} must be NAME://host:port, such as 'FLUSS://127.0.0.1:9123', got {item.strip()!r}")
        name = match[1].upper()
        if name in addresses:
            raise _invalid(f"{option} has listener {name} twice; names must be unique")
        addresses[name] = (match[2] or match[3] or "0.0.0.0", _checked_port(match[4], option))
    return addresses


def parse_protocol_map(text: str, names: Sequence[str]) -> dict[str, str]:
    """Parse ``security.protocol.map`` into listener name -> protocol. Names of unbound listeners are ignored."""
    protocols = dict.fromkeys(names, "PLAINTEXT")
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (part.strip() for part in item.partition(":"))
        if not colon or not name:
            raise _invalid(f"security.protocol.map must be LISTENER:protocol, such as 'CLIENT:sasl', got {item!r}")
        if protocol.upper() not in PROTOCOLS:
            raise _invalid(
                f"security.protocol.map: unknown protocol {protocol!r} of listener {name}; use PLAINTEXT or sasl"
            )
        if name.upper() in protocols:
            protocols[name.upper()] = protocol.upper()
    return protocols


def build_listeners(
    bind: Mapping[str, tuple[str, int]], advertised: Mapping[str, tuple[str, int]], protocols: Mapping[str, str]
) -> tuple[Listener, ...]:
    """Combine the parsed options and check that they are consistent."""
    unknown = advertised.keys() - bind.keys()
    if unknown:
        raise _invalid(
            f"advertised.listeners may name only bind.listeners ({', '.join(bind)}), got {', '.join(sorted(unknown))}"
        )
    ports = [port for _, port in bind.values() if port != 0]
    repeated = sorted({port for port in ports if ports.count(port) > 1})
    if repeated:
        raise _invalid(f"bind.listeners uses port {repeated[0]} for more than one listener; give each its own port")
    listeners = []
    for name, (host, port) in bind.items():
        shown_host, shown_port = advertised.get(name, (None, None))
        listeners.append(Listener(name, host, port, protocols[name], shown_host, shown_port))
    return tuple(listeners)


def check_access_control(enabled: bool, listeners: Sequence[Listener], internal: str) -> None:
    """Refuse to enable ACLs when the only listener is the internal one, whose requests are not checked."""
    if enabled and all(listener.name == internal for listener in listeners):
        raise _invalid(
            f"authorizer.enabled is true, but {internal} is the only listener, and it is the internal one, where "
            "no request is checked. Add a listener for clients, for example bind.listeners: "
            f"'{internal}://127.0.0.1:9123, CLIENT://0.0.0.0:9223' with security.protocol.map: 'CLIENT:sasl', and keep "
            f"{internal} away from them; or set authorizer.enabled to false"
        )


def bind(listener: Listener, port: int) -> socket.socket:
    """Return a socket that listens; with port 0 the kernel chooses one. Errors name the address and a remedy."""
    address = format_address(listener.host, port)
    try:
        found = socket.getaddrinfo(listener.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise _invalid(f"listener {listener.name}: cannot resolve host {listener.host!r}: {error}") from error
    family, kind, protocol, _, target = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and listener.host != "::":
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(target)
        bound.listen(BACKLOG_CONNECTIONS)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise _invalid(
            f"listener {listener.name}: cannot listen on {address}: {error.strerror or error}; "
            "choose another address with --bind or bind.listeners, or stop the program that uses it"
        ) from error
    return bound


def is_wildcard(host: str) -> bool:
    """True if a host stands for all interfaces."""
    return host in _WILDCARD_HOSTS


def local_address(host: str) -> str:
    """Return the address at which other machines reach a wildcard listener; other hosts are returned unchanged.

    Connecting a datagram socket sends nothing: it only makes the kernel choose the outgoing interface.
    """
    if not is_wildcard(host):
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
