"""A request is complete and its strings are valid, or it is refused with code 3."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.parsing import parse_request


def test_a_good_request_in_any_buffer() -> None:
    body = pb.TableExistsRequest(table_path=pb.PbTablePath(database_name="dé", table_name="t")).SerializeToString()
    for buffer in (body, bytearray(body), memoryview(body)):
        assert parse_request(pb.TableExistsRequest, buffer).table_path.database_name == "dé"


@pytest.mark.parametrize(
    ("request_type", "body", "text"),
    [
        (pb.TableExistsRequest, b"\x0a", "not a valid TableExistsRequest"),
        (pb.TableExistsRequest, b"\x0a\x7f", "not a valid TableExistsRequest"),
        (pb.TableExistsRequest, b"", "lacks required fields: table_path"),
        (pb.TableExistsRequest, b"\x0a\x00", "table_path.database_name, table_path.table_name"),
        (pb.DatabaseExistsRequest, b"\x0a\x01\xff", "not UTF-8"),
        (pb.TableExistsRequest, b"\x0a\x06\x0a\x01\xff\x12\x01t", "not UTF-8"),
        (pb.MetadataRequest, b"\x0a\x06\x0a\x01d\x12\x01\xff", "not UTF-8"),
        (pb.MetadataRequest, b"\x0a\x00" * 9, "and 13 more"),
    ],
)
def test_a_bad_request_is_refused(request_type: type[Message], body: bytes, text: str) -> None:
    with pytest.raises(FlussError, match=text) as error:
        parse_request(request_type, body)
    assert error.value.error_code == ErrorCode.CORRUPT_MESSAGE


def test_bytes_fields_may_hold_anything() -> None:
    request = pb.AuthenticateRequest(protocol="PLAIN", token=b"\xff\xfe")
    assert parse_request(pb.AuthenticateRequest, request.SerializeToString()).token == b"\xff\xfe"


def test_texts_deep_inside_a_filter_are_checked() -> None:
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1)
    table = request.tables_req.add(table_id=1, projection_pushdown_enabled=False)
    table.filter_predicate.type = 1
    table.filter_predicate.compound.function = 0
    child = table.filter_predicate.compound.children.add(type=0)
    child.leaf.function, child.leaf.field_id = 0, 1
    child.leaf.literals.add(literal_type=8, is_null=False, string_value="MARK")
    body = request.SerializeToString()
    assert parse_request(pb.FetchLogRequest, body) == request
    with pytest.raises(FlussError, match="not UTF-8"):
        parse_request(pb.FetchLogRequest, body.replace(b"MARK", b"MA\xffK"))
