"""When batches leave, what they hold, and how they are numbered."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fluss.client.net.metadata import ClientTable
from fluss.client.send.acknowledgements import Chunk
from fluss.client.send.bucket_queue import NO_SEQUENCE, BucketQueue, EncodingFailedError, Piece, WriteBatch
from fluss.client.send.log_encoding import TableEncoder, numbered, statistics_columns
from fluss.codec.arrow.types import to_arrow_schema
from fluss.codec.batches.arrow_batch import decode_arrow_batch
from fluss.codec.batches.log_batch import check_crc, read_header
from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import TablePath
from fluss.model.schema import Column, Schema
from fluss.model.types import BytesType, IntType, StringType

SCHEMA = Schema((Column("id", IntType()), Column("name", StringType())))
PLAIN = {"table.log.arrow.compression.type": "none"}


class NobodyAtAll:
    """An owner of chunks that does nothing."""

    def on_settled(self, chunk: Chunk) -> None: ...
    def check_usable(self) -> None: ...


def table(schema: Schema = SCHEMA, properties: dict[str, str] | None = None) -> ClientTable:
    descriptor = TableDescriptor(schema, bucket_count=1, properties=PLAIN | (properties or {}))
    return ClientTable(TablePath("db", "t"), 7, 2, descriptor, 0, 0)


def encoder(max_batch_bytes: int = 10**6) -> TableEncoder:
    return TableEncoder(table(), max_batch_bytes)


def queue(
    of: TableEncoder, batch_bytes: int = 1000, partition: str | None = None, dropped: list[int] | None = None
) -> BucketQueue:
    return BucketQueue(
        of,
        partition,
        0,
        batch_bytes=batch_bytes,
        batch_timeout_seconds=0.1,
        max_in_flight=5,
        drop_writer_id=([] if dropped is None else dropped).append,
    )


def piece(of: TableEncoder, rows: int = 1, *, encoded: bool = False) -> Piece:
    batch = pa.record_batch([pa.array(range(rows), pa.int32()), pa.array(["x"] * rows)], to_arrow_schema(SCHEMA))
    made = Piece(Chunk(0, NobodyAtAll()), of, None, 0, batch)
    if encoded:
        made.data = list(of.encode_parts(batch))
    return made


def row_count(batch: WriteBatch) -> int:
    return read_header(batch.data).record_count


def sent(bucket: BucketQueue, writer_id: int = 9) -> WriteBatch:
    batch = bucket.next_batch()
    bucket.number(batch, writer_id)
    return batch


def test_a_lone_piece_leaves_at_once_and_others_gather_behind_it() -> None:
    of = encoder()
    bucket = queue(of)
    bucket.add(piece(of), 1.0)
    assert bucket.may_send(1.0)
    first = sent(bucket)
    for _ in range(3):
        bucket.add(piece(of, 2), 1.0)
    assert not bucket.may_send(1.05)
    assert bucket.due_in(1.05) == pytest.approx(0.05)
    assert bucket.may_send(1.1)  # after the time-out even so
    bucket.done(first)
    assert bucket.may_send(1.05)
    assert row_count(sent(bucket)) == 6
    assert not bucket.has_unsent


def test_full_and_encoded_batches_do_not_wait_for_answers() -> None:
    of = encoder()
    bucket = queue(of, batch_bytes=200)
    bucket.add(piece(of, 10), 0.0)
    sent(bucket)
    bucket.add(piece(of, 10), 0.0)
    assert not bucket.may_send(0.0)
    bucket.add(piece(of, 20), 0.0)  # together more than a batch
    assert bucket.may_send(0.0)
    assert row_count(sent(bucket)) == 10
    bucket.add(piece(of, 3, encoded=True), 0.0)
    assert bucket.may_send(0.0)  # nothing can be merged across an encoded piece
    assert [row_count(sent(bucket)) for _ in range(2)] == [20, 3]
    bucket.add(piece(of, 3, encoded=True), 0.0)
    sent(bucket)
    bucket.add(piece(of, 3, encoded=True), 0.0)
    assert bucket.in_flight == 5
    assert not bucket.may_send(9.9)
    assert bucket.due_in(9.9) is None


def test_a_retried_batch_goes_first_with_its_old_number() -> None:
    of = encoder()
    bucket = queue(of)
    for _ in range(4):
        bucket.add(piece(of, encoded=True), 0.0)
    batches = [sent(bucket) for _ in range(3)]
    assert [batch.sequence for batch in batches] == [0, 1, 2]
    bucket.retry(batches[1], 5.0)
    assert not bucket.may_send(6.0)  # silent while others are in flight
    bucket.done(batches[0])
    bucket.retry(batches[2], 1.0)
    assert bucket.speak_again() == []
    assert not bucket.may_send(4.9)
    assert bucket.may_send(5.0)
    again = [sent(bucket) for _ in range(3)]
    assert again[:2] == batches[1:]
    assert [batch.sequence for batch in again] == [1, 2, 3]
    assert [batch.attempts for batch in again] == [2, 2, 1]


def test_batches_move_up_when_one_before_them_was_given_up() -> None:
    of = encoder()
    bucket = queue(of)
    for _ in range(3):
        bucket.add(piece(of, encoded=True), 0.0)
    batches = [sent(bucket) for _ in range(3)]
    bucket.done(batches[0])
    bucket.given_up(batches[1])
    bucket.retry(batches[2], 0.0)
    assert bucket.speak_again() == []
    assert sent(bucket).sequence == 1
    assert batches[2].sequence == 1
    assert batches[2].writer_id == 9


def test_a_new_writer_id_starts_at_zero_and_what_is_in_doubt_is_not_sent_twice() -> None:
    of = encoder()
    bucket = queue(of)
    for _ in range(3):
        bucket.add(piece(of, encoded=True), 0.0)
    batches = [sent(bucket) for _ in range(3)]
    batches[1].in_doubt = True
    bucket.reset()
    for batch in batches:
        bucket.retry(batch, 0.0)
    assert bucket.speak_again() == [batches[1]]
    again = [sent(bucket, writer_id=10) for _ in range(2)]
    assert again == [batches[0], batches[2]]
    assert [(batch.writer_id, batch.sequence) for batch in again] == [(10, 0), (10, 1)]


def test_another_writer_id_is_taken_up_only_when_nothing_is_under_way() -> None:
    of = encoder()
    bucket = queue(of)
    for _ in range(3):
        bucket.add(piece(of, encoded=True), 0.0)
    first, second = sent(bucket, 9), sent(bucket, 10)
    assert (second.writer_id, second.sequence) == (9, 1)
    bucket.done(first)
    bucket.done(second)
    third = sent(bucket, 10)
    assert (third.writer_id, third.sequence) == (10, 0)


def test_a_partition_with_another_id_is_numbered_anew() -> None:
    of = encoder()
    bucket = queue(of, partition="p")
    assert bucket.bucket is None
    bucket.locate(3)
    bucket.add(piece(of, encoded=True), 0.0)
    batch = sent(bucket)
    bucket.done(batch)
    bucket.locate(3)
    assert bucket.speak_again() == []
    bucket.locate(4)
    bucket.speak_again()
    bucket.add(piece(of, encoded=True), 0.0)
    batch = sent(bucket)
    assert batch.sequence == 0
    assert batch.bucket is not None
    assert batch.bucket.partition_id == 4


def test_everything_unsent_can_be_taken_to_fail() -> None:
    of = encoder()
    bucket = queue(of)
    bucket.add(piece(of, encoded=True), 0.0)
    batch = sent(bucket)
    bucket.add(piece(of), 0.0)
    bucket.retry(batch, 0.0)
    batches, pieces = bucket.take_everything()
    assert (batches, len(pieces)) == ([batch], 1)
    assert not bucket.has_unsent
    assert bucket.is_quiet


def test_a_batch_that_is_too_large_is_halved_and_a_row_refused() -> None:
    of = encoder(max_batch_bytes=900)
    bucket = queue(of, batch_bytes=10**6)
    bucket.add(piece(of, 100), 0.0)
    counts = []
    while bucket.has_unsent:
        counts.append(row_count(sent(bucket)))
    assert len(counts) > 1
    assert sum(counts) == 100
    schema = Schema((Column("data", BytesType()),))
    large = TableEncoder(table(schema), 900)
    rows = pa.record_batch([pa.array([bytes(1000)])], to_arrow_schema(schema))
    bucket.add(Piece(Chunk(0, NobodyAtAll()), large, None, 0, rows), 0.0)
    with pytest.raises(EncodingFailedError) as caught:
        bucket.next_batch()
    assert caught.value.error.error_code == ErrorCode.RECORD_TOO_LARGE_EXCEPTION


@pytest.mark.parametrize("properties", [{}, {"table.statistics.columns": "*"}, {"table.log.format": "INDEXED"}])
def test_numbering_changes_only_the_header(properties: dict[str, str]) -> None:
    of = TableEncoder(table(properties=properties), 10**6)
    rows = piece(of, 5).rows
    data = of.encode(rows)
    head, body = numbered(data, 77, 3)
    whole = bytes(head) + bytes(body)
    header = read_header(whole)
    assert (header.writer_id, header.batch_sequence, header.schema_id) == (77, 3, 2)
    assert check_crc(whole, 0, header)
    assert len(whole) == len(data)
    assert (header.magic == 1) == ("table.statistics.columns" in properties)
    if "table.log.format" not in properties:
        assert decode_arrow_batch(whole, to_arrow_schema(SCHEMA))[0] == rows


def test_statistics_columns_of_a_table() -> None:
    setting = "table.statistics.columns"
    assert statistics_columns(table()) is None
    assert statistics_columns(table(properties={setting: " name , id"})) == [1, 0]
    schema = Schema((Column("data", BytesType()), Column("id", IntType())))
    assert statistics_columns(table(schema, {setting: "*"})) == [1]


def test_unknown_formats_are_refused() -> None:
    with pytest.raises(FlussError, match="log format 'PARQUET'"):
        TableEncoder(table(properties={"table.log.format": "parquet"}), 10)
    with pytest.raises(FlussError, match="compression"):
        TableEncoder(table(properties={"table.log.arrow.compression.type": "brotli"}), 10)
    assert NO_SEQUENCE < 0


def test_who_begins_again_drops_the_writer_id() -> None:
    """Under the old one the server would take the first new batches for repetitions of what it has."""
    of = encoder()
    dropped: list[int] = []
    bucket = queue(of, dropped=dropped)
    bucket.add(piece(of, encoded=True), 0.0)
    bucket.done(sent(bucket))
    bucket.add(piece(of, encoded=True), 0.0)
    bucket.retry(sent(bucket), 0.0)
    bucket.take_everything()
    assert dropped == [9]
    bucket.speak_again()
    bucket.add(piece(of), 0.0)
    bucket.take_everything()
    assert dropped == [9], "what was never numbered leaves no doubt"
