"""Accepting batches: checks, offsets, timestamps, duplicates, acknowledgement."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fluss.codec.batches.log_batch import BatchHeader, encode_header, read_header
from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.storage.log.options import LogOptions
from tests.support.storage.bucket_logs import LogBench, batch_of, read_all
from tests.support.storage.faulty_files import NoSyncFiles

MAX_LINES_PER_APPEND = 200


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[LogBench]:
    bench = LogBench(tmp_path, NoSyncFiles())
    yield bench
    bench.close()


@pytest.fixture
def log(bench: LogBench) -> BucketLog:
    return bench.open()


def _refused(bench: LogBench, log: BucketLog, records: bytes) -> int:
    releases = bench.releases
    end = log.log_end_offset
    with pytest.raises(FlussError) as caught:
        bench.append(log, records)
    assert bench.releases == releases, "a refused append released the buffer"
    assert log.log_end_offset == end
    return caught.value.error_code


def test_offsets_and_timestamp_are_stamped_and_the_rest_is_kept(bench: LogBench, log: BucketLog) -> None:
    first, second = batch_of(3, payload=b"abc"), batch_of(2, magic=2)
    assert bench.append_and_wait(log, first, 5000).base_offset == 0
    answer = bench.append_and_wait(log, second, 4000)
    assert (answer.base_offset, answer.last_offset, answer.next_offset) == (3, 4, 5)
    (one, one_bytes), (two, two_bytes) = read_all(log)
    assert (one.base_offset, one.commit_timestamp) == (0, 5000)
    # A clock that goes back does not: timestamps never decrease in a bucket.
    assert (two.base_offset, two.commit_timestamp) == (3, 5000)
    assert one_bytes[21:] == first[21:]
    assert two_bytes[21:] == second[21:]
    assert log.newest_timestamp == 5000
    assert log.size_bytes == len(first) + len(second)


def test_several_batches_in_one_append(bench: LogBench, log: BucketLog) -> None:
    records = batch_of(2) + batch_of(0) + batch_of(4)
    answer = bench.append_and_wait(log, records)
    assert (answer.base_offset, answer.last_offset) == (0, 6)
    assert [header.base_offset for header, _ in read_all(log)] == [0, 2, 3]


def test_an_incomplete_batch_at_the_end_is_ignored(bench: LogBench, log: BucketLog) -> None:
    whole = batch_of(2)
    bench.append_and_wait(log, whole + whole[:50])
    assert log.high_watermark == 2
    assert log.size_bytes == len(whole)
    nothing = bench.append_and_wait(log, whole[:50])
    assert nothing.base_offset == -1
    assert bench.append_and_wait(log, b"").base_offset == -1
    assert bench.releases == 3


def test_damaged_batches_are_refused(bench: LogBench, log: BucketLog) -> None:
    good = batch_of(2)
    wrong_checksum = bytearray(good)
    wrong_checksum[-1] ^= 1
    assert _refused(bench, log, bytes(wrong_checksum)) == ErrorCode.CORRUPT_RECORD_EXCEPTION
    assert _refused(bench, log, good + bytes(wrong_checksum)) == ErrorCode.CORRUPT_RECORD_EXCEPTION
    negative = bytearray(good)
    negative[11] = 0xFF
    assert _refused(bench, log, bytes(negative)) == ErrorCode.CORRUPT_RECORD_EXCEPTION
    unknown = bytearray(good)
    unknown[12] = 9
    assert _refused(bench, log, bytes(unknown)) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert read_all(log) == []


def test_a_batch_whose_offsets_do_not_match_its_rows_is_refused(bench: LogBench, log: BucketLog) -> None:
    from fluss.codec.crc import crc32c

    header = read_header(batch_of(3))
    lying: BatchHeader = header._replace(last_offset_delta=100)
    body = batch_of(3)[48:]
    content = encode_header(lying)[25:] + body
    records = encode_header(lying._replace(crc=crc32c(content)))[:25] + content
    assert _refused(bench, log, records) == ErrorCode.CORRUPT_RECORD_EXCEPTION


def test_duplicates_are_answered_with_the_original_offset(bench: LogBench, log: BucketLog) -> None:
    batches = [batch_of(2, writer_id=9, sequence=number) for number in range(6)]
    for batch in batches:
        bench.append_and_wait(log, batch)
    for number in range(1, 6):
        answer = bench.append_and_wait(log, batches[number])
        assert (answer.duplicate, answer.base_offset, answer.last_offset) == (True, number * 2, number * 2 + 1)
    assert _refused(bench, log, batches[0]) == ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION
    assert _refused(bench, log, batch_of(1, writer_id=9, sequence=7)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION
    assert len(read_all(log)) == 6
    assert bench.releases == 11


def test_one_duplicate_in_an_append_answers_for_all_of_it(bench: LogBench, log: BucketLog) -> None:
    bench.append_and_wait(log, batch_of(2, writer_id=9, sequence=0))
    answer = bench.append_and_wait(log, batch_of(2, writer_id=9, sequence=0) + batch_of(2, writer_id=9, sequence=1))
    assert (answer.duplicate, answer.base_offset) == (True, 0)
    assert log.high_watermark == 2


def test_sequences_inside_one_append_must_follow_each_other(bench: LogBench, log: BucketLog) -> None:
    good = batch_of(1, writer_id=9, sequence=0) + batch_of(1, writer_id=9, sequence=1)
    bench.append_and_wait(log, good)
    gap = batch_of(1, writer_id=9, sequence=2) + batch_of(1, writer_id=9, sequence=4)
    assert _refused(bench, log, gap) == ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION
    assert not bench.append_and_wait(log, batch_of(1, writer_id=9, sequence=2)).duplicate


def test_a_repetition_waits_for_the_original(bench: LogBench, log: BucketLog) -> None:
    batch = batch_of(2, writer_id=9, sequence=0)
    original = bench.append(log, batch)
    repeated = bench.append(log, batch)
    assert repeated.duplicate
    assert not repeated.committed
    order: list[str] = []
    repeated.add_durable(lambda error: order.append("repeated"))
    original.add_durable(lambda error: order.append("original"))
    bench.loop.run_until(lambda: len(order) == 2)
    assert log.high_watermark == 2


def test_five_batches_of_a_writer_are_known_after_a_restart(bench: LogBench, log: BucketLog) -> None:
    batches = [batch_of(1, writer_id=9, sequence=number) for number in range(8)]
    for batch in batches:
        bench.append_and_wait(log, batch)
    log.close()
    again = bench.open()
    assert again.recovery_report.scanned_bytes == 0
    for number in range(3, 8):
        assert bench.append_and_wait(again, batches[number]).base_offset == number
    assert _refused(bench, again, batches[2]) == ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION


def test_expired_writers_start_over(bench: LogBench, log: BucketLog) -> None:
    bench.append_and_wait(log, batch_of(1, writer_id=9, sequence=0), now_ms=1000)
    assert log.expire_writers(1000 + log.options.writer_expiration_ms + 1) == 1
    assert _refused(bench, log, batch_of(1, writer_id=9, sequence=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION
    bench.append_and_wait(log, batch_of(1, writer_id=9, sequence=0))


def test_written_comes_before_durable_and_both_come_once(bench: LogBench, log: BucketLog) -> None:
    events: list[str] = []
    append = bench.append(log, batch_of(1))
    append.add_written(lambda error: events.append("written"))
    append.add_durable(lambda error: events.append("durable"))
    bench.loop.run_until(lambda: "durable" in events)
    assert events == ["written", "durable"]
    append.add_written(lambda error: events.append("late written"))
    append.add_durable(lambda error: events.append("late durable"))
    assert events[2:] == ["late written", "late durable"]


def test_listeners_see_the_new_high_watermark_and_a_broken_one_is_harmless(bench: LogBench, log: BucketLog) -> None:
    seen: list[int] = []

    def broken() -> None:
        raise ValueError("broken")

    def listener() -> None:
        seen.append(log.high_watermark)

    log.add_high_watermark_listener(broken)
    log.add_high_watermark_listener(listener)
    bench.append_and_wait(log, batch_of(3))
    log.remove_high_watermark_listener(listener)
    bench.append_and_wait(log, batch_of(3))
    assert seen == [3]


def test_huge_row_counts_roll_instead_of_overflowing(bench: LogBench, log: BucketLog) -> None:
    """A header may claim two billion rows; relative offsets in the index are int32."""
    for _ in range(3):
        bench.append_and_wait(log, batch_of(2**31 - 1))
    assert log.high_watermark == 3 * (2**31 - 1)
    assert len(log.segments) == 3
    assert log.read(2**31 + 5, 10).first_batch_offset == 2**31 - 1


def test_one_segment_per_batch(tmp_path: Path) -> None:
    bench = LogBench(tmp_path / "tiny", NoSyncFiles(), options=LogOptions(segment_bytes=120))
    log = bench.open()
    for _ in range(10):
        bench.append_and_wait(log, batch_of(1, payload=bytes(60)))
    assert [segment.base_offset for segment in log.segments] == list(range(10))
    assert len(read_all(log)) == 10
    log.close()
    assert len(read_all(bench.open())) == 10
    bench.close()


def test_an_append_costs_little_python(bench: LogBench, log: BucketLog) -> None:
    """A coarse guard against something quadratic, in lines of Python; the exact figure is the benchmark's."""
    buffers = [memoryview(bytearray(batch_of(1, writer_id=1, sequence=number))) for number in range(2000)]
    lines = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    lines_of_quarters = []
    tracer = sys.gettrace()
    for quarter in range(4):
        lines = 0
        sys.settrace(count)
        try:
            for buffer in buffers[500 * quarter : 500 * (quarter + 1)]:
                log.append(buffer, 1, lambda: None)
        finally:
            sys.settrace(tracer)
        lines_of_quarters.append(lines)
    bench.settle()
    assert log.high_watermark == 2000
    assert max(lines_of_quarters) < 500 * MAX_LINES_PER_APPEND, lines_of_quarters
