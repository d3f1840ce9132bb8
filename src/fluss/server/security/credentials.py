"""Parses the user names and passwords of the SASL listeners. Pure functions; no error contains a password."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fluss.errors import ErrorCode, FlussError
from fluss.server.runtime.listeners import Listener
from fluss.server.security.sasl import PLAIN_MECHANISM, Credentials

JAAS_OPTION = "security.sasl.plain.jaas.config"
CREDENTIALS_OPTION = "security.sasl.plain.credentials"
MECHANISMS_OPTION = "security.sasl.enabled.mechanisms"

# One option of a login module: name = "string with \\ escapes", or a bare word.
_JAAS_OPTION = re.compile(r"""\s*([A-Za-z0-9_.-]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")
_JAAS_HEAD = re.compile(r"\s*[\w.$]+\s+(required|requisite|sufficient|optional)(?=[\s;])", re.IGNORECASE)


def _invalid(message: str) -> FlussError:
    return FlussError(message, ErrorCode.INVALID_CONFIG_EXCEPTION)


def parse_jaas(text: str, option: str) -> dict[str, str]:
    """Return the users of ``<module> required user_<name>="<password>" ...;``."""
    head = _JAAS_HEAD.match(text)
    if head is None:
        raise _invalid(f"{option} must be '<login module> required user_<name>=\"<password>\" ...;'")
    users: dict[str, str] = {}
    position = head.end()
    while match := _JAAS_OPTION.match(text, position):
        name, value = match[1], match[2]
        if value[0] in "\"'":
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        if name.startswith("user_"):
            if not name[5:] or not value:
                raise _invalid(f"{option}: {name} needs a user name and a password that is not empty")
            users[name[5:]] = value
        position = match.end()
    if text[position:].strip() != ";":
        raise _invalid(f"{option}: cannot be read after character {position}: end the list of users with ';'")
    return users


def parse_credentials(text: str, option: str) -> dict[str, str]:
    """Return the users of ``name:password,name2:password2``."""
    users: dict[str, str] = {}
    for place, item in enumerate(filter(None, (part.strip() for part in text.split(","))), start=1):
        name, colon, password = item.partition(":")
        if not colon or not re.fullmatch(r"\w+", name) or not password or re.search(r'[:";\\\x00-\x1f]', password):
            raise _invalid(
                f"{option}: entry {place} must be name:password, with a name of letters, digits and underscores and a "
                "password without colons, quotes, semicolons and backslashes"
            )
        users[name] = password
    return users


def read_mechanisms(values: Mapping[str, str], listeners: Sequence[Listener]) -> tuple[str, ...]:
    """Return the enabled mechanisms in upper case; required if any listener uses SASL."""
    names = tuple(item.strip().upper() for item in values.get(MECHANISMS_OPTION, "").split(",") if item.strip())
    for name in names:
        if name != PLAIN_MECHANISM:
            raise _invalid(f"{MECHANISMS_OPTION}: {name} is not supported; this server knows {PLAIN_MECHANISM}")
    wanting = [listener.name for listener in listeners if listener.protocol == "SASL"]
    if wanting and not names:
        raise _invalid(f"{MECHANISMS_OPTION} is not set, but listener {wanting[0]} is sasl; set it to 'plain'")
    return names


def read_credentials(values: Mapping[str, str], listeners: Sequence[Listener]) -> dict[str, Credentials]:
    """Return the credentials of the SASL listeners by name; a listener without users is an error."""
    shared: dict[str, str] = {}
    if JAAS_OPTION in values:
        shared.update(parse_jaas(values[JAAS_OPTION], JAAS_OPTION))
    if CREDENTIALS_OPTION in values:
        shared.update(parse_credentials(values[CREDENTIALS_OPTION], CREDENTIALS_OPTION))
    credentials: dict[str, Credentials] = {}
    for listener in listeners:
        if listener.protocol != "SASL":
            continue
        own = f"security.sasl.listener.name.{listener.name.lower()}.plain.jaas.config"
        users = parse_jaas(values[own], own) if own in values else shared
        if not users:
            raise _invalid(f"listener {listener.name} is sasl, but has no users: set {JAAS_OPTION} or {own}")
        credentials[listener.name] = Credentials(users)
    return credentials
