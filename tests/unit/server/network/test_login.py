"""SASL/PLAIN over the wire, and that passwords are not shown."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tests.support.servers.toy_network import RunningNetwork, running_network
from tools.servers.wire_client import WireClient


@pytest.fixture
def network() -> Iterator[RunningNetwork]:
    with running_network(users={"admin": "secret", "bób": "pässword"}) as running:
        yield running


@pytest.fixture
def client(network: RunningNetwork) -> Iterator[WireClient]:
    with network.sasl_client() as connected:
        yield connected


def test_the_worked_bytes_of_a_login(client: WireClient) -> None:
    client.send_bytes(bytes.fromhex("0000001e040e0000000000010a05504c41494e120d0061646d696e00736563726574"))
    assert client.receive_exactly(11).hex() == "0000000700000000010a00"
    client.send_bytes(bytes.fromhex("00000011040e0000000000020a05504c41494e1200"))
    assert client.receive_exactly(9).hex() == "000000050000000002"


def test_the_principal_is_the_user(network: RunningNetwork, client: WireClient) -> None:
    client.api_versions()
    assert client.authenticate("bób", "pässword").HasField("challenge")
    client.metadata()
    context = network.service.contexts[-1]
    assert (context.principal_name, context.principal_type, context.listener) == ("bób", "User", "CLIENT")
    assert not context.is_internal


@pytest.mark.parametrize("api_key", [1012, 1014, 1001, 5])
def test_nothing_but_the_handshake_before_login(client: WireClient, api_key: int) -> None:
    client.api_versions()
    with pytest.raises(FlussError) as error:
        client.receive(client.send(api_key, b""))
    assert error.value.error_code == ErrorCode.AUTHENTICATE_EXCEPTION
    client.authenticate("admin", "secret")
    client.metadata()


@pytest.mark.parametrize(
    ("user", "password"), [("admin", "wrong"), ("admin", ""), ("", "secret"), ("nobody", "secret"), ("admin", "secre")]
)
def test_wrong_credentials_get_46_and_may_try_again(client: WireClient, user: str, password: str) -> None:
    with pytest.raises(FlussError) as error:
        client.authenticate(user, password)
    assert error.value.error_code == ErrorCode.AUTHENTICATE_EXCEPTION
    with pytest.raises(FlussError):
        client.metadata()
    client.authenticate("admin", "secret")
    client.metadata()


@pytest.mark.parametrize(("mechanism", "code"), [("SCRAM", 46), ("sasl", 46), ("plain", -1), ("PLAINTEXT", 46)])
def test_other_mechanisms(client: WireClient, mechanism: str, code: int) -> None:
    with pytest.raises(FlussError) as error:
        client.authenticate("admin", "secret", mechanism)
    assert error.value.error_code == code


def test_after_login_another_authenticate_is_not_evaluated(network: RunningNetwork, client: WireClient) -> None:
    client.authenticate("admin", "secret")
    assert not client.authenticate("admin", "wrong").HasField("challenge")
    assert not client.authenticate("bób", "pässword").HasField("challenge")
    client.metadata()
    assert network.service.contexts[-1].principal_name == "admin"


def test_a_listener_without_login(network: RunningNetwork) -> None:
    with network.client() as client:
        request = pb.AuthenticateRequest(protocol="PLAINTEXT", token=b"")
        assert not client.call(ApiKey.AUTHENTICATE, request).HasField("challenge")
        with pytest.raises(FlussError) as error:
            client.authenticate("admin", "secret")
        assert error.value.error_code == ErrorCode.AUTHENTICATE_EXCEPTION
        client.metadata()


def test_passwords_are_never_logged(client: WireClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for password in ("hunter2", "s\x00hunter2"):
            with pytest.raises(FlussError) as error:
                client.authenticate("admin", password)
            assert "hunter2" not in str(error.value)
        client.authenticate("admin", "secret")
    assert "refused" in caplog.text
    assert "hunter2" not in caplog.text
    assert "secret" not in caplog.text
