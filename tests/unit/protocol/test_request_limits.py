"""Requests with more entries than any handler is made for are refused before anything goes through the entries."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import staged_api_pb2 as staged_pb
from fluss.protocol.parsing import parse_request
from fluss.protocol.request_limits import MAX_ENTRIES_BY_MESSAGE, MAX_REQUEST_ENTRIES

MANY = MAX_REQUEST_ENTRIES + 1
MANY_OF_A_FETCH = MAX_ENTRIES_BY_MESSAGE["FetchLogRequest"] + 1


def offsets(count: int) -> pb.ListOffsetsRequest:
    return pb.ListOffsetsRequest(table_id=1, follower_server_id=-1, offset_type=0, bucket_id=[0] * count)


def nested(tables: int, buckets: int) -> pb.FetchLogRequest:
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1)
    for _ in range(tables):
        table = request.tables_req.add(table_id=1, projection_pushdown_enabled=False)
        for _ in range(buckets):
            table.buckets_req.add(bucket_id=0, fetch_offset=0, max_fetch_bytes=1)
    return request


def predicates(count: int) -> bytes:
    """A fetch with a predicate of predicates; what is missing in them is not looked for."""
    table = pb.PbFetchLogReqForTable(table_id=1, projection_pushdown_enabled=False)
    inner = table.filter_predicate.compound.children.add().compound
    for _ in range(count):
        inner.children.add()
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1)
    request.tables_req.add().CopyFrom(table)
    return request.SerializePartialToString()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (pb.ListOffsetsRequest, offsets(MANY).SerializeToString()),
        (pb.FetchLogRequest, nested(MANY_OF_A_FETCH // 128 + 1, 127).SerializeToString()),
        (pb.FetchLogRequest, predicates(MANY_OF_A_FETCH)),
        # None of these is complete: naming what is missing would cost more than all else.
        (pb.LookupRequest, b"\x12\x00" * MANY),
    ],
    ids=["numbers", "nested messages", "predicates of predicates", "incomplete messages"],
)
def test_too_many_entries_are_refused(kind: type[Message], body: bytes) -> None:
    most = MAX_ENTRIES_BY_MESSAGE.get(kind.__name__, MAX_REQUEST_ENTRIES)
    with pytest.raises(FlussError, match=f"at most {most} entries, got more") as raised:
        parse_request(kind, body)
    assert raised.value.error_code == ErrorCode.CORRUPT_MESSAGE


def test_as_many_as_allowed_are_served() -> None:
    assert len(parse_request(pb.ListOffsetsRequest, offsets(MAX_REQUEST_ENTRIES).SerializeToString()).bucket_id) > 1


def test_prefixes_are_counted() -> None:
    request = pb.PrefixLookupRequest(table_id=1)
    request.buckets_req.add(bucket_id=0, keys=[b"k"] * (MAX_REQUEST_ENTRIES - 1))
    assert len(parse_request(pb.PrefixLookupRequest, request.SerializeToString()).buckets_req[0].keys) > 1
    request.buckets_req.add(bucket_id=1, keys=[b"k"])
    with pytest.raises(FlussError, match="must have at most"):
        parse_request(pb.PrefixLookupRequest, request.SerializeToString())


def test_keys_and_staged_files_have_limits_of_their_own() -> None:
    lookup = pb.LookupRequest(table_id=1)
    lookup.buckets_req.add(bucket_id=0, keys=[b"k"] * MANY)
    assert len(parse_request(pb.LookupRequest, lookup.SerializeToString()).buckets_req[0].keys) == MANY
    staged = staged_pb.PrepareStagedRequest(table_id=1, transaction="q", batch_id=0)
    file = staged_pb.PbStagedFile(writer_id=1, batch_count=1, size_bytes=1)
    staged.buckets.add(bucket_id=0, files=[file] * MANY)
    assert len(parse_request(staged_pb.PrepareStagedRequest, staged.SerializeToString()).buckets[0].files) == MANY
