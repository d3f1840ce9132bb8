"""SASL/PLAIN: where credentials come from, how a token is judged, and the login state of one connection.

Credentials are read from Apache Fluss's options. For a listener, in this order: its own
`security.sasl.listener.name.<listener>.plain.jaas.config`; otherwise `security.sasl.plain.jaas.config` for all
listeners with `security.sasl.plain.credentials` (`name:password,...`) merged over it.

Passwords never leave this module: not in error texts, not in `repr`, not in log lines.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping

from fluss.errors import ErrorCode, FlussError

PLAIN_MECHANISM = "PLAIN"
PLAIN_MODULE_SUFFIX = "PlainLoginModule"
USER_OPTION_PREFIX = "user_"
MAX_TOKEN_BYTES = 4096

_JAAS_TOKEN = re.compile(r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<word>[^\s=;"]+)|(?P<sign>[=;]))', re.DOTALL)
_CONTROL_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})


class Credentials:
    """User names and passwords of one listener. Only digests of the passwords are kept."""

    __slots__ = ("_digests",)

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = {name: _digest(password.encode()) for name, password in passwords.items()}

    def __repr__(self) -> str:
        return f"Credentials({len(self._digests)} users)"

    @property
    def user_names(self) -> tuple[str, ...]:
        """The names that can log in."""
        return tuple(self._digests)

    def matches(self, name: str, password: bytes) -> bool:
        """Whether the password is the user's. Takes the same time for unknown users and wrong passwords."""
        expected = self._digests.get(name)
        same = hmac.compare_digest(_digest(password), expected if expected is not None else _NOBODY)
        return same and expected is not None


def _digest(password: bytes) -> bytes:
    return hashlib.sha256(password).digest()


_NOBODY = bytes(32)


def parse_jaas_config(text: str) -> dict[str, str]:
    """User -> password of a JAAS entry `...PlainLoginModule required user_<name>="<password>" ...;`."""
    tokens = list(_jaas_tokens(text))
    words = [word for _, word in tokens]
    if len(words) < 3 or not words[0].endswith(PLAIN_MODULE_SUFFIX) or words[1].lower() not in _CONTROL_FLAGS:
        raise _config_error("it must start with '<package>.PlainLoginModule required'")
    if tokens[-1] != ("sign", ";"):
        raise _config_error("it must end with ';'")
    options = tokens[2:-1]
    users: dict[str, str] = {}
    for index in range(0, len(options), 3):
        option = options[index : index + 3]
        if [kind for kind, _ in option] not in (["word", "sign", "quoted"], ["word", "sign", "word"]):
            raise _config_error(f'option {index // 3 + 1} is not of the form name="value"')
        name, equals, value = (word for _, word in option)
        if equals != "=":
            raise _config_error(f"a '=' is missing in option {index // 3 + 1}")
        if name.startswith(USER_OPTION_PREFIX):
            users[name[len(USER_OPTION_PREFIX) :]] = value
    return users


def _jaas_tokens(text: str) -> Iterable[tuple[str, str]]:
    """(kind, text) per token: a quoted string without its quotes, a bare word, or one of the signs = and ;."""
    position = 0
    text = text.strip()
    while position < len(text):
        match = _JAAS_TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise _config_error(f"a quote is not closed (character {position + 1})")
        position = match.end()
        word = match.group(match.lastgroup)
        if match.lastgroup == "quoted":
            word = re.sub(r"\\(.)", r"\1", word, flags=re.DOTALL)
        yield match.lastgroup, word


def _config_error(detail: str) -> FlussError:
    return FlussError(f"the JAAS text for SASL/PLAIN is not understood: {detail}", ErrorCode.INVALID_CONFIG_EXCEPTION)


def parse_credentials_map(text: str) -> dict[str, str]:
    """User -> password of `name:password,name2:password2`."""
    users: dict[str, str] = {}
    for number, entry in enumerate(filter(None, map(str.strip, text.split(","))), start=1):
        name, colon, password = entry.partition(":")
        if not colon or not password or re.fullmatch(r"[A-Za-z0-9_]+", name) is None:
            detail = f"entry {number} of security.sasl.plain.credentials is not of the form name:password"
            raise FlussError(detail, ErrorCode.INVALID_CONFIG_EXCEPTION)
        users[name] = password
    return users


def load_credentials(options: Mapping[str, str], listener_names: Iterable[str]) -> dict[str, Credentials]:
    """Credentials per listener name from server options; see the module's text for the order."""
    shared: dict[str, str] = {}
    if options.get("security.sasl.plain.jaas.config"):
        shared.update(parse_jaas_config(options["security.sasl.plain.jaas.config"]))
    if options.get("security.sasl.plain.credentials"):
        shared.update(parse_credentials_map(options["security.sasl.plain.credentials"]))
    result: dict[str, Credentials] = {}
    for name in listener_names:
        own = options.get(f"security.sasl.listener.name.{name.lower()}.plain.jaas.config")
        result[name] = Credentials(parse_jaas_config(own) if own else shared)
    return result


def authenticate_plain(token: bytes, credentials: Credentials) -> str:
    """The user name that the token proves, or `FlussError` 46. The text never tells which part was wrong."""
    parts = token.split(b"\x00") if len(token) <= MAX_TOKEN_BYTES else []
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise _refused("the PLAIN token is malformed")
    try:
        authorization_id, name = parts[0].decode(), parts[1].decode()
    except UnicodeDecodeError:
        raise _refused("the PLAIN token is malformed") from None
    if authorization_id not in ("", name):
        raise _refused("the authorization id must be empty or the user name")
    if not credentials.matches(name, parts[2]):
        raise _refused("user name or password is wrong")
    return name


def _refused(detail: str) -> FlussError:
    return FlussError(f"authentication failed: {detail}", ErrorCode.AUTHENTICATE_EXCEPTION)


class Login:
    """Login state of one connection: open to everything, or waiting for AUTHENTICATE.

    A PLAINTEXT listener (credentials None) starts ready. On a SASL listener the state goes from waiting to ready once,
    and stays for the life of the connection.
    """

    __slots__ = ("_credentials", "failures", "is_ready", "principal_name")

    def __init__(self, credentials: Credentials | None, anonymous_name: str) -> None:
        self._credentials = credentials
        self.is_ready = credentials is None
        self.principal_name = anonymous_name
        self.failures = 0

    def authenticate(self, mechanism: str, token: bytes) -> bool:
        """Judge one AUTHENTICATE. True: this one logged in (answer with an empty challenge); False: nothing to do."""
        if self._credentials is None:
            if mechanism.upper() == "PLAINTEXT":
                return False
            self.failures += 1
            raise _refused("this listener is PLAINTEXT: connect without SASL, or to another listener")
        if self.is_ready:
            return False  # a client that got a challenge answers it once more; its token is not evaluated
        try:
            self._log_in(self._credentials, mechanism, token)
        except FlussError:
            self.failures += 1
            raise
        return True

    def _log_in(self, credentials: Credentials, mechanism: str, token: bytes) -> None:
        if mechanism.upper() != PLAIN_MECHANISM:
            raise _refused(f"mechanism {mechanism[:40]!r} is not enabled here, use {PLAIN_MECHANISM}")
        if mechanism != PLAIN_MECHANISM:
            text = f"mechanism names are upper case: use {PLAIN_MECHANISM}"
            raise FlussError(text, ErrorCode.UNKNOWN_SERVER_ERROR)
        self.principal_name = authenticate_plain(token, credentials)
        self.is_ready = True
