"""SASL/PLAIN: checking of tokens, and the login state of one connection.

The users are parsed in `credentials.py`. Passwords never leave this module: only their digests are kept, and no error,
`repr` or log line contains them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from fluss.errors import ErrorCode, FlussError

PLAIN_MECHANISM = "PLAIN"
MAX_TOKEN_BYTES = 4096


class Credentials:
    """The user names of one listener, with digests of their passwords."""

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
        """True if the password is the user's. Takes the same time for unknown users and wrong passwords."""
        expected = self._digests.get(name)
        same = hmac.compare_digest(_digest(password), expected if expected is not None else _NOBODY)
        return same and expected is not None


def _digest(password: bytes) -> bytes:
    return hashlib.sha256(password).digest()


_NOBODY = bytes(32)


def authenticate_plain(token: bytes, credentials: Credentials) -> str:
    """Return the user name of a valid token, or raise code 46; the message never reveals which part was wrong."""
    parts = token.split(b"\x00") if len(token) <= MAX_TOKEN_BYTES else []
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise _refused("the PLAIN token must be authorization id, user name and password, separated by NUL")
    try:
        authorization_id, name = parts[0].decode(), parts[1].decode()
    except UnicodeDecodeError:
        raise _refused("the names in the PLAIN token must be UTF-8") from None
    if authorization_id not in ("", name):
        raise _refused("the authorization id must be empty or the user name")
    if not credentials.matches(name, parts[2]):
        raise _refused("user name or password is wrong")
    return name


def _refused(detail: str) -> FlussError:
    return FlussError(f"authentication failed: {detail}", ErrorCode.AUTHENTICATE_EXCEPTION)


class Login:
    """The login state of one connection: ready, or waiting for AUTHENTICATE.

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
        """Handle AUTHENTICATE. True if the peer has logged in (answer an empty challenge), False if nothing changed."""
        if self._credentials is None:
            if mechanism.upper() == "PLAINTEXT":
                return False
            self.failures += 1
            raise _refused("this listener is PLAINTEXT: connect without SASL, or to another listener")
        if self.is_ready:
            return False  # a client that got a challenge answers it with a second token, which is not evaluated
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
