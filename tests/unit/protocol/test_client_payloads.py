"""Records beside messages on the client's side: the same bytes as the protobuf runtime, without copying."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.client_payloads import split_fetch_response, split_scan_response, write_request_pieces
from fluss.protocol.server_payloads import split_produce, split_put_kv

buckets = st.lists(
    st.tuples(st.none() | st.integers(0, 2**40), st.integers(0, 1000), st.none() | st.binary(max_size=300)), max_size=4
)


@given(st.lists(buckets, max_size=3))
def test_a_split_answer_is_the_parsed_answer(tables: list[list[tuple[int | None, int, bytes | None]]]) -> None:
    whole = pb.FetchLogResponse()
    for table_id, entries in enumerate(tables):
        table = whole.tables_resp.add(table_id=table_id)
        for partition_id, bucket_id, records in entries:
            table.buckets_resp.add(
                partition_id=partition_id, bucket_id=bucket_id, records=records, high_watermark=bucket_id * 7
            )
    body = memoryview(whole.SerializeToString())
    message, slices = split_fetch_response(body)
    expected = [
        bucket.records if bucket.HasField("records") else None for t in whole.tables_resp for bucket in t.buckets_resp
    ]
    assert [None if each is None else bytes(each) for each in slices] == expected
    assert all(each is None or each.obj is body.obj for each in slices), "a slice, not a copy"
    for table in whole.tables_resp:
        for bucket in table.buckets_resp:
            bucket.ClearField("records")
    assert message == whole


@given(st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=40), st.integers(0, 2**40))
def test_a_split_scan_is_the_parsed_one(records: bytes | None, scanner_id: bytes | None, log_offset: int) -> None:
    whole = pb.ScanKvResponse(
        records=records, scanner_id=scanner_id, has_more_results=scanner_id is not None, log_offset=log_offset
    )
    body = memoryview(whole.SerializeToString())
    message, found = split_scan_response(body)
    assert (None if found is None else bytes(found)) == records
    assert found is None or found.obj is body.obj, "a slice, not a copy"
    whole.ClearField("records")
    assert message == whole


@given(st.binary(max_size=200))
def test_nonsense_is_refused_or_parsed_but_never_worse(body: bytes) -> None:
    for split in (split_fetch_response, split_scan_response):
        with contextlib.suppress(FlussError):
            split(memoryview(body))


def test_a_cut_answer_is_a_corrupt_message() -> None:
    with pytest.raises(FlussError) as caught:
        split_fetch_response(memoryview(b"\x0a\x05\x08"))
    assert caught.value.error_code == ErrorCode.CORRUPT_MESSAGE


@given(buckets, st.sampled_from([-1, 0, 1]))
def test_the_pieces_of_a_write_are_what_a_server_reads(
    entries: list[tuple[int | None, int, bytes | None]], acks: int
) -> None:
    request = pb.ProduceLogRequest(acks=acks, table_id=5, timeout_ms=1000)
    payloads: list[bytes | list[bytes]] = []
    for index, (partition_id, bucket_id, records) in enumerate(entries):
        request.buckets_req.add(partition_id=partition_id, bucket_id=bucket_id)
        payload = records or b""
        payloads.append([payload[:10], payload[10:]] if index % 2 else payload)
    body = b"".join(write_request_pieces(request, payloads))
    message, found = split_produce(memoryview(bytearray(body)))
    assert (message.acks, message.table_id, message.timeout_ms) == (acks, 5, 1000)
    assert [bucket.bucket_id for bucket in message.buckets_req] == [entry[1] for entry in entries]
    assert [bytes(each) for each in found] == [entry[2] or b"" for entry in entries]


def test_a_key_value_write_keeps_its_other_fields() -> None:
    request = pb.PutKvRequest(acks=-1, table_id=5, timeout_ms=1000, target_columns=[0, 2], agg_mode=1)
    request.buckets_req.add(bucket_id=3)
    body = b"".join(write_request_pieces(request, [memoryview(b"abc")]))
    message, found = split_put_kv(memoryview(bytearray(body)))
    assert list(message.target_columns) == [0, 2]
    assert message.agg_mode == 1
    assert [bytes(each) for each in found] == [b"abc"]


def test_entries_and_buffers_must_match() -> None:
    request = pb.ProduceLogRequest(acks=-1, table_id=5, timeout_ms=1000)
    with pytest.raises(ValueError, match="got 1 for 0 bucket entries"):
        write_request_pieces(request, [b"x"])
