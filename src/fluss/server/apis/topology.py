"""The addresses of this server's roles, as metadata answers give them to clients.

Plain values, fixed when the sockets are bound and before any role starts, so every process has the same view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Address = tuple[str, int]
"""Host and port that clients connect to."""


@dataclass(frozen=True)
class Topology:
    """Advertised addresses by listener name: of the coordinator, and of each tablet (its index is its server id)."""

    coordinator: Mapping[str, Address]
    tablets: Sequence[Mapping[str, Address]]

    def __post_init__(self) -> None:
        for server_id, addresses in enumerate(self.tablets):
            assert addresses.keys() == self.coordinator.keys(), f"tablet {server_id} has different listeners"

    @property
    def tablet_count(self) -> int:
        return len(self.tablets)

    @property
    def listener_names(self) -> tuple[str, ...]:
        """The names of the listeners, in the order of ``bind.listeners``."""
        return tuple(self.coordinator)
