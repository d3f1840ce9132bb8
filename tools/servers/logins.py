"""The users of servers under test, and the settings of a server that requires them to log in."""

from __future__ import annotations

from collections.abc import Mapping

USERS = {"admin": "admin-secret", "alice": "alice-secret"}


def jaas_config(users: Mapping[str, str] = USERS) -> str:
    """The value of `security.sasl.plain.jaas.config` for these users."""
    entries = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return f"org.apache.fluss.security.auth.sasl.plain.PlainLoginModule required {entries};"


# A plaintext listener FLUSS, on which everything is allowed, and a listener CLIENT that requires a login.
TWO_LISTENERS = {
    "bind.listeners": "FLUSS://127.0.0.1:0, CLIENT://127.0.0.1:0",
    "internal.listener.name": "FLUSS",
    "security.protocol.map": "CLIENT:sasl",
    "security.sasl.enabled.mechanisms": "plain",
    "security.sasl.plain.jaas.config": jaas_config(),
    "super.users": "User:admin",
}
