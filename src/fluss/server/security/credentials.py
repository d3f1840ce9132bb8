"""Which mechanisms and users the SASL listeners of a configuration have; pure checks on top of `sasl`.

A SASL listener that nobody could log in to is refused here, before anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fluss.errors import ErrorCode, FlussError
from fluss.server.listeners import Listener
from fluss.server.security.sasl import PLAIN_MECHANISM, Credentials, load_credentials

MECHANISMS_OPTION = "security.sasl.enabled.mechanisms"


def _invalid(message: str) -> FlussError:
    return FlussError(message, ErrorCode.INVALID_CONFIG_EXCEPTION)


def _sasl_names(listeners: Sequence[Listener]) -> list[str]:
    return [listener.name for listener in listeners if listener.protocol == "SASL"]


def read_mechanisms(values: Mapping[str, str], listeners: Sequence[Listener]) -> tuple[str, ...]:
    """The enabled mechanisms in upper case; mandatory as soon as a listener wants SASL."""
    names = tuple(item.strip().upper() for item in values.get(MECHANISMS_OPTION, "").split(",") if item.strip())
    for name in names:
        if name != PLAIN_MECHANISM:
            raise _invalid(f"{MECHANISMS_OPTION}: {name} is not supported; this server knows {PLAIN_MECHANISM}")
    wanting = _sasl_names(listeners)
    if wanting and not names:
        raise _invalid(f"{MECHANISMS_OPTION} is not set, but listener {wanting[0]} is sasl; set it to 'plain'")
    return names


def read_credentials(values: Mapping[str, str], listeners: Sequence[Listener]) -> dict[str, Credentials]:
    """Credentials of every SASL listener by its name; one without users is an error."""
    credentials = load_credentials(values, _sasl_names(listeners))
    for name, users in credentials.items():
        if not users.user_names:
            raise _invalid(
                f"listener {name} is sasl, but has no users: set security.sasl.plain.jaas.config "
                f"or security.sasl.listener.name.{name.lower()}.plain.jaas.config"
            )
    return credentials
