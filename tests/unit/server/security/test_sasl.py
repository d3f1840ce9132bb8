"""The rules of a PLAIN token and of the login state."""

from __future__ import annotations

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.server.security.sasl import MAX_TOKEN_BYTES, Credentials, Login, authenticate_plain

CREDENTIALS = Credentials({"admin": "admin-secret", "bob": "b"})


@pytest.mark.parametrize("token", [b"\x00admin\x00admin-secret", b"admin\x00admin\x00admin-secret"])
def test_good_tokens(token: bytes) -> None:
    assert authenticate_plain(token, CREDENTIALS) == "admin"


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\x00",
        b"\x00\x00",
        b"admin\x00admin-secret",
        b"\x00admin\x00",
        b"\x00\x00admin-secret",
        b"\x00admin\x00admin-secret\x00",
        b"bob\x00admin\x00admin-secret",
        b"\x00admin\x00Admin-secret",
        b"\x00nobody\x00admin-secret",
        b"\x00\xff\x00x",
        b"\x00admin\x00" + b"x" * MAX_TOKEN_BYTES,
    ],
)
def test_bad_tokens(token: bytes) -> None:
    with pytest.raises(FlussError) as error:
        authenticate_plain(token, CREDENTIALS)
    assert error.value.error_code == ErrorCode.AUTHENTICATE_EXCEPTION


def test_credentials_do_not_show_passwords() -> None:
    assert repr(CREDENTIALS) == "Credentials(2 users)"
    assert CREDENTIALS.user_names == ("admin", "bob")
    assert not any(b"secret" in value for value in CREDENTIALS._digests.values())


def test_an_unknown_user_with_the_placeholder_digest_is_refused() -> None:
    assert not CREDENTIALS.matches("nobody", b"")
    assert not Credentials({}).matches("admin", b"admin-secret")


def test_a_login_happens_once() -> None:
    login = Login(CREDENTIALS, "ANONYMOUS")
    assert not login.is_ready
    with pytest.raises(FlussError):
        login.authenticate("PLAIN", b"\x00admin\x00no")
    assert (login.is_ready, login.failures) == (False, 1)
    assert login.authenticate("PLAIN", b"\x00admin\x00admin-secret")
    assert (login.is_ready, login.principal_name) == (True, "admin")
    assert not login.authenticate("PLAIN", b"\x00bob\x00b")
    assert login.principal_name == "admin"


def test_without_credentials_all_users_are_anonymous() -> None:
    login = Login(None, "ANONYMOUS")
    assert (login.is_ready, login.principal_name) == (True, "ANONYMOUS")
