"""All limits of the network layer, with their units in their names.

The defaults follow the options of Apache Fluss where they exist (`netty.server.max-request-size`,
`netty.connection.max-idle-time`); the others keep one peer from affecting the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True)
class NetworkLimits:
    """Limits of one server process."""

    # Frames. Sizes include the length field.
    max_request_bytes: int = 100 * MIB
    # Requests without record bytes: they are parsed into objects, which take a multiple of their size.
    max_control_request_bytes: int = 4 * MIB
    max_request_before_login_bytes: int = 64 * KIB

    # Connections.
    max_connections: int = 2048
    max_login_failures_per_connection: int = 10

    # How much one connection may have under way before the server stops reading from it.
    max_in_flight_requests_per_connection: int = 256
    max_unsent_bytes_before_pause: int = 1 * MIB
    # Answers that were requested before the pause may still pile up; beyond this the peer is disconnected.
    max_unsent_bytes_per_connection: int = 256 * MIB

    # A turn serves at most this many requests of one connection, then others have their turn.
    max_requests_per_turn: int = 128

    # Received bytes of frames that are not served yet, and record bytes that handlers still hold, over all connections.
    max_received_bytes_in_memory: int = 512 * MIB
    # The part of it that is shared evenly by the frames being received, when the rest is taken.
    max_shared_received_bytes: int = 256 * MIB
    # Answers with rows that handlers are making or peers have not received, over all connections.
    max_answer_bytes_in_memory: int = 512 * MIB
    # Receive buffers kept for reuse.
    max_pooled_bytes: int = 32 * MIB

    # Time.
    frame_stall_seconds: float = 30.0  # a started frame makes no progress
    frame_stall_under_pressure_seconds: float = 2.0  # a started frame makes no progress while others wait for memory
    write_stall_seconds: float = 60.0  # the peer receives nothing of what is waiting for it
    write_stall_under_pressure_seconds: float = 5.0  # the peer receives nothing while others wait for memory
    login_seconds: float = 30.0
    idle_seconds: float = 600.0  # nothing in either direction and nothing under way
    stop_grace_seconds: float = 5.0  # for requests under way when the server stops

    def sweep_seconds(self) -> float:
        """The interval at which connections are checked: a quarter of the shortest time limit, within bounds."""
        shortest = min(
            self.frame_stall_seconds,
            self.frame_stall_under_pressure_seconds,
            self.write_stall_seconds,
            self.login_seconds,
            self.idle_seconds,
        )
        return min(max(shortest / 4, 0.02), 1.0)
