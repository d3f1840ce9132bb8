"""Mechanisms and users of SASL listeners, as a configuration gives them."""

from __future__ import annotations

import pytest

from fluss.errors import FlussError
from fluss.server.runtime.listeners import Listener
from fluss.server.security.credentials import parse_credentials, parse_jaas, read_credentials, read_mechanisms

MODULE = "org.apache.fluss.security.auth.sasl.plain.PlainLoginModule"
CLIENT = Listener("CLIENT", "127.0.0.1", 0, "SASL")
PLAIN = Listener("FLUSS", "127.0.0.1", 0)


def test_a_listeners_own_users_take_precedence_and_the_newer_list_is_merged_over_the_older() -> None:
    values = {
        "security.sasl.plain.jaas.config": f'{MODULE} required user_a="1" user_b="2";',
        "security.sasl.plain.credentials": "b:3,c:4",
    }
    credentials = read_credentials(values, [PLAIN, CLIENT])
    assert list(credentials) == ["CLIENT"]
    assert [credentials["CLIENT"].matches(name, b"3") for name in "abc"] == [False, True, False]
    values["security.sasl.listener.name.client.plain.jaas.config"] = f'{MODULE} required user_z="9";'
    assert read_credentials(values, [CLIENT])["CLIENT"].user_names == ("z",)


def test_a_sasl_listener_without_users_is_an_error() -> None:
    with pytest.raises(FlussError, match="listener CLIENT is sasl, but has no users"):
        read_credentials({}, [CLIENT])
    assert read_credentials({}, [PLAIN]) == {}


def test_a_sasl_listener_needs_a_mechanism_and_only_plain_exists() -> None:
    option = "security.sasl.enabled.mechanisms"
    with pytest.raises(FlussError, match=r"mechanisms is not set, but listener CLIENT is sasl"):
        read_mechanisms({}, [CLIENT])
    with pytest.raises(FlussError, match="GSSAPI is not supported"):
        read_mechanisms({option: "plain,gssapi"}, [CLIENT])
    assert read_mechanisms({option: "plain"}, [CLIENT]) == ("PLAIN",)
    assert read_mechanisms({}, [PLAIN]) == ()


def test_jaas_with_several_users_escapes_and_other_options() -> None:
    text = f"""{MODULE} required
        username = "ignored"
        user_admin="admin-secret" user_b.c='x y;z' user_q="a\\"b";"""
    assert parse_jaas(text, "o") == {"admin": "admin-secret", "b.c": "x y;z", "q": 'a"b'}


@pytest.mark.parametrize(
    "text",
    [
        "",
        'user_a="hunter2";',
        f'{MODULE} required user_a="hunter2"',
        f'{MODULE} required user_a="hunter2;',
        f'{MODULE} required user_a="hunter2" nonsense;',
        f'{MODULE} required user_="hunter2";',
        f'{MODULE} maybe user_a="hunter2";',
    ],
)
def test_invalid_jaas_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(FlussError) as caught:
        parse_jaas(text, "the.option")
    assert "the.option" in caught.value.message
    assert "hunter2" not in caught.value.message


def test_credentials_list() -> None:
    assert parse_credentials("a:b, c_1:d,", "o") == {"a": "b", "c_1": "d"}


@pytest.mark.parametrize("text", ["a", "a:", ":hunter2", "a b:hunter2", "a:hun:ter2", "x:y,a:hunter2;"])
def test_an_invalid_credentials_list_names_only_the_entry(text: str) -> None:
    with pytest.raises(FlussError, match=r"the\.option: entry \d must be name:password") as caught:
        parse_credentials(text, "the.option")
    assert "hunter2" not in caught.value.message
