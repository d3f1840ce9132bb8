"""Record bytes stay in place on the way in and are separate pieces on the way out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import server_payloads
from fluss.protocol.server_payloads import (
    BucketRecords,
    encode_varint,
    fetch_response_pieces,
    limit_scan_response_pieces,
    pieces_size,
    split_produce,
    split_put_kv,
)
from fluss.protocol.wire_fields import WireFields

payloads = st.binary(max_size=300)
int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)


@given(
    acks=int32s,
    table_id=int64s,
    buckets=st.lists(st.tuples(st.none() | int64s, int32s, payloads), max_size=8),
)
def test_a_split_write_is_the_message_without_its_payloads(
    acks: int, table_id: int, buckets: list[tuple[int | None, int, bytes]]
) -> None:
    request = pb.ProduceLogRequest(acks=acks, table_id=table_id, timeout_ms=5)
    for partition_id, bucket_id, payload in buckets:
        request.buckets_req.add(partition_id=partition_id, bucket_id=bucket_id, records=payload)
    message, records = split_produce(memoryview(request.SerializeToString()))
    assert [bytes(each) for each in records] == [payload for _, _, payload in buckets]
    for entry in request.buckets_req:
        entry.records = b""
    assert message == request


def test_the_slices_are_the_frames_own_bytes() -> None:
    request = pb.ProduceLogRequest(acks=1, table_id=1, timeout_ms=1)
    request.buckets_req.add(bucket_id=0, records=b"abc")
    body = bytearray(request.SerializeToString())
    _, (records,) = split_produce(memoryview(body))
    records[0:1] = b"X"
    assert pb.ProduceLogRequest.FromString(bytes(body)).buckets_req[0].records == b"Xbc"


def test_put_kv_keeps_its_other_fields() -> None:
    request = pb.PutKvRequest(acks=-1, table_id=3, timeout_ms=9, target_columns=[0, 2], agg_mode=1)
    request.buckets_req.add(bucket_id=4, records=b"kv")
    message, records = split_put_kv(memoryview(request.SerializeToString()))
    assert [bytes(each) for each in records] == [b"kv"]
    assert (list(message.target_columns), message.agg_mode, message.buckets_req[0].bucket_id) == ([0, 2], 1, 4)


def test_fields_in_any_order_unknown_fields_and_the_last_payload_wins() -> None:
    bucket = b"\x1a\x01a" + b"\x48\x05" + b"\x1a\x02bb" + b"\x10\x07"  # records, unknown field 9, records, bucket_id
    body = b"\x22" + encode_varint(len(bucket)) + bucket + b"\x18\x01\x10\x02\x08\x01"
    message, records = split_produce(memoryview(body))
    assert [bytes(each) for each in records] == [b"bb"]
    assert (message.acks, message.table_id, message.timeout_ms) == (1, 2, 1)
    assert message.buckets_req[0].bucket_id == 7


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "lacks required fields"),
        (b"\x08\x01\x10\x02\x18\x01\x22\x02\x10\x07", r"buckets_req\[0\].records"),
        (b"\x22\x05\x1a", "longer than its message"),
        (b"\x22\x02\x1a\x05", "longer than its message"),
        (b"\x08", "cut off"),
        (b"\x08" + b"\xff" * 11, "too long"),
        (b"\x0b", "wire type 3"),
        (b"\x09\x00\x00", "longer than its message"),
        (b"\x0d\x00", "longer than its message"),
    ],
)
def test_damaged_writes_are_refused(body: bytes, text: str) -> None:
    with pytest.raises(FlussError, match=text) as error:
        split_produce(memoryview(body))
    assert error.value.error_code == ErrorCode.CORRUPT_MESSAGE


def test_many_fields_are_not_walked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    request = pb.ProduceLogRequest(acks=1, table_id=2, timeout_ms=3)
    for number in range(20):
        request.buckets_req.add(bucket_id=number, records=bytes([number]) * number)
    body = request.SerializeToString()
    walked = split_produce(memoryview(body))
    monkeypatch.setattr(server_payloads, "MAX_WALKED_FIELDS", 10)
    walks: list[int] = []

    def new_walk(walked_body: memoryview, what: str, max_fields: int) -> WireFields:
        walks.append(max_fields)
        return WireFields(walked_body, what, max_fields)

    monkeypatch.setattr(server_payloads, "WireFields", new_walk)
    message, records = split_produce(memoryview(body))
    assert walks == [10]
    assert (message, records) == walked
    assert not any(view.readonly for view in records)
    with pytest.raises(FlussError, match="lacks required fields"):
        split_produce(memoryview(b"\x22\x00" * 11))


@given(st.binary(max_size=60))
def test_random_bodies_never_fail_in_another_way(body: bytes) -> None:
    try:
        message, records = split_produce(memoryview(body))
    except FlussError as error:
        code = error.error_code
    else:
        code = ErrorCode.NONE
        assert len(message.buckets_req) == len(records)
    assert code in (ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE)


@given(
    st.lists(
        st.tuples(
            int64s,
            st.lists(st.tuples(int32s, st.none() | st.lists(payloads, max_size=3), st.none() | int64s), max_size=3),
        ),
        max_size=3,
    )
)
def test_a_fetch_answer_in_pieces_is_the_message(
    tables: list[tuple[int, list[tuple[int, list[bytes] | None, int | None]]]],
) -> None:
    expected = pb.FetchLogResponse()
    parts: list[tuple[int, list[BucketRecords]]] = []
    for table_id, buckets in tables:
        entry = expected.tables_resp.add(table_id=table_id)
        parts.append((table_id, []))
        for bucket_id, pieces, filtered in buckets:
            message = pb.PbFetchLogRespForBucket(bucket_id=bucket_id, high_watermark=5, filtered_end_offset=filtered)
            parts[-1][1].append(BucketRecords(message, pieces))
            bucket = entry.buckets_resp.add()
            bucket.CopyFrom(message)
            if pieces is not None:
                bucket.records = b"".join(pieces)
    pieces_out = fetch_response_pieces(parts)
    assert pb.FetchLogResponse.FromString(b"".join(pieces_out)) == expected
    assert pieces_size(pieces_out) == sum(map(len, pieces_out))


def test_big_payloads_are_not_copied_and_small_ones_are_joined() -> None:
    big = memoryview(bytes(100_000))
    message = pb.PbFetchLogRespForBucket(bucket_id=1)
    small = [b"x" * 10] * 50
    pieces = fetch_response_pieces([(1, [BucketRecords(message, [*small, big, *small])])])
    assert len(pieces) == 3
    assert pieces[1] is big


def test_a_limit_scan_answer_in_pieces_is_the_message() -> None:
    message = pb.LimitScanResponse(is_log_table=True)
    pieces = limit_scan_response_pieces(message, [b"ab", memoryview(b"cd")])
    assert pb.LimitScanResponse.FromString(b"".join(pieces)) == pb.LimitScanResponse(is_log_table=True, records=b"abcd")
    empty = pb.LimitScanResponse.FromString(b"".join(limit_scan_response_pieces(message, [])))
    assert empty.HasField("records")


@pytest.mark.parametrize(("value", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (2**31 - 1, "ffffffff07")])
def test_varints(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
