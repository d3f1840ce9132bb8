"""Frames against the worked bytes of the protocol."""

from __future__ import annotations

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.protocol.frames import (
    MAX_ERROR_TEXT_CHARACTERS,
    RequestHeader,
    error_frame,
    read_error,
    read_length,
    read_request_header,
    read_response,
    request_frame,
    success_frame,
    success_prefix,
)


def _hex(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


API_VERSIONS_REQUEST = _hex("0000001b 03e8 0000 00000000 0a0a666c7573732d72757374 1205312e302e30")
API_VERSIONS_ANSWER = _hex("00000010 00 00000000 0a0708f80710001802 1002")
METADATA_REQUEST_RUST = _hex("00000008 03f4 0000 00000001")
METADATA_REQUEST_JAVA = _hex("0000000a 03f4 0000 00000001 1a00")
METADATA_REQUEST_TABLE = _hex("00000014 03f4 0000 00000000 0a0a0a05666c757373120174")
AUTHENTICATE_REQUEST = _hex("0000001e 040e 0000 00000001 0a05504c41494e 120d0061646d696e00736563726574")
AUTHENTICATE_ANSWER = _hex("00000007 00 00000001 0a00")
AUTHENTICATE_AGAIN_REQUEST = _hex("00000011 040e 0000 00000002 0a05504c41494e 1200")
AUTHENTICATE_AGAIN_ANSWER = _hex("00000005 00 00000002")
ERROR_WITHOUT_TEXT = _hex("00000010 01 00000005 08ffffffffffffffffff01")
ERROR_WITH_TEXT = _hex("0000000a 01 00000005 0807 120178")
SERVER_FAILURE = _hex("00000006 02 0803 120178")


@pytest.mark.parametrize(
    ("frame", "api_key", "request_id", "message"),
    [
        (
            API_VERSIONS_REQUEST,
            ApiKey.API_VERSIONS,
            0,
            pb.ApiVersionsRequest(client_software_name="fluss-rust", client_software_version="1.0.0"),
        ),
        (METADATA_REQUEST_RUST, ApiKey.GET_METADATA, 1, pb.MetadataRequest()),
        (
            METADATA_REQUEST_TABLE,
            ApiKey.GET_METADATA,
            0,
            pb.MetadataRequest(table_path=[pb.PbTablePath(database_name="fluss", table_name="t")]),
        ),
        (
            AUTHENTICATE_REQUEST,
            ApiKey.AUTHENTICATE,
            1,
            pb.AuthenticateRequest(protocol="PLAIN", token=b"\x00admin\x00secret"),
        ),
        (AUTHENTICATE_AGAIN_REQUEST, ApiKey.AUTHENTICATE, 2, pb.AuthenticateRequest(protocol="PLAIN", token=b"")),
    ],
)
def test_requests_have_the_worked_bytes(
    frame: bytes, api_key: ApiKey, request_id: int, message: pb.MetadataRequest
) -> None:
    assert request_frame(api_key, 0, request_id, message.SerializeToString()) == frame
    assert read_length(frame) == len(frame) - 4
    assert read_request_header(frame) == RequestHeader(api_key, 0, request_id)
    assert type(message).FromString(frame[12:]) == message


def test_an_empty_packed_field_is_read_as_nothing() -> None:
    assert pb.MetadataRequest.FromString(METADATA_REQUEST_JAVA[12:]).partitions_id == []


def test_answers_have_the_worked_bytes() -> None:
    versions = pb.ApiVersionsResponse(server_type=2)
    versions.api_versions.add(api_key=1016, min_version=0, max_version=2)
    assert success_frame(0, versions.SerializeToString()) == API_VERSIONS_ANSWER
    assert success_frame(1, pb.AuthenticateResponse(challenge=b"").SerializeToString()) == AUTHENTICATE_ANSWER
    assert success_frame(2, b"") == AUTHENTICATE_AGAIN_ANSWER
    assert success_prefix(1, 2) + b"\x0a\x00" == AUTHENTICATE_ANSWER
    assert error_frame(5, -1) == ERROR_WITHOUT_TEXT
    assert error_frame(5, 7, "x") == ERROR_WITH_TEXT


def test_answers_are_read_back() -> None:
    response = read_response(AUTHENTICATE_ANSWER[4:])
    assert (response.type, response.request_id, bytes(response.body)) == (0, 1, b"\x0a\x00")
    response = read_response(ERROR_WITH_TEXT[4:])
    assert (response.type, response.request_id) == (1, 5)
    error = read_error(response.body)
    assert (error.message, error.error_code) == ("x", ErrorCode.TABLE_NOT_EXIST)
    assert read_error(read_response(ERROR_WITHOUT_TEXT[4:]).body).error_code == -1


def test_a_server_failure_has_no_request_id() -> None:
    response = read_response(SERVER_FAILURE[4:])
    assert (response.type, response.request_id) == (2, None)
    assert read_error(response.body).error_code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("frame", [b"", b"\x00", b"\x01\x00\x00\x00"])
def test_short_answers_are_refused(frame: bytes) -> None:
    with pytest.raises(FlussError) as error:
        read_response(frame)
    assert error.value.error_code == ErrorCode.NETWORK_EXCEPTION


def test_error_texts_are_cut_and_always_encodable() -> None:
    error = read_error(read_response(error_frame(1, 3, "a\udcff" + "b" * 5000)[4:]).body)
    assert error.message == "a?" + "b" * (MAX_ERROR_TEXT_CHARACTERS - 2)


def test_a_body_that_fits_no_frame_is_an_error() -> None:
    with pytest.raises(FlussError):
        success_prefix(1, 2**31 - 1)
