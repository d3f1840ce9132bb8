"""Where the roles of this server can be reached: what metadata answers tell clients.

Plain values, fixed when the sockets are bound and before any role starts, so every process has the same view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Address = tuple[str, int]
"""Host and port as clients shall use them."""


@dataclass(frozen=True)
class Topology:
    """Advertised addresses: of the coordinator by listener name, and of each tablet (its place is its server id)."""

    coordinator: Mapping[str, Address]
    tablets: Sequence[Mapping[str, Address]]

    def __post_init__(self) -> None:
        for server_id, addresses in enumerate(self.tablets):
            assert addresses.keys() == self.coordinator.keys(), f"tablet {server_id} has other listeners"

    @property
    def tablet_count(self) -> int:
        return len(self.tablets)

    @property
    def listener_names(self) -> tuple[str, ...]:
        """Names in the order of ``bind.listeners``."""
        return tuple(self.coordinator)
