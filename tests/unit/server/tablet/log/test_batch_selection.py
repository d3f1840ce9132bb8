"""Budgets, empty batches and scan limits of fetches with projection or filter."""

from __future__ import annotations

from collections.abc import Iterator

from fluss.codec.batches.log_batch import BatchHeader, empty_batch, encode_batch, iter_batches, stamp
from fluss.codec.buffers import ReadableBuffer
from fluss.server.tablet.log.batch_selection import MAX_SCANNED_BATCHES, BatchSelection, RecordBytes, select_batches


def log_of(*sizes: int) -> bytes:
    """Batches with bodies of these sizes and 10 rows each; size 0 is a batch without rows."""
    out = bytearray()
    offset = 0
    for size in sizes:
        batch = encode_batch((bytes(size),), 10, 1, append_only=True) if size else empty_batch(1)
        position = len(out)
        out += batch
        stamp(out, position, offset, 5)
        offset += 10 if size else 1
    return bytes(out)


def batches(log: bytes) -> Iterator[tuple[ReadableBuffer, int, BatchHeader]]:
    for position, header in iter_batches(log):
        yield log, position, header


def half(buffer: ReadableBuffer, position: int, header: BatchHeader) -> list[RecordBytes]:
    return [memoryview(buffer)[position : position + header.size // 2]]


def select(log: bytes, budget: int, **options: object) -> BatchSelection:
    selection = BatchSelection()
    arguments: dict[str, object] = {"first_whole": True, "project": None, "keep": None, **options}
    select_batches(selection, batches(log), budget, **arguments)  # type: ignore[arg-type]
    return selection


def test_batches_are_added_while_they_fit() -> None:
    log = log_of(100, 100, 100)
    assert select(log, 10_000).size_bytes == len(log)
    two = select(log, 2 * 148)
    assert two.size_bytes == 2 * 148
    assert two.budget_reached
    assert two.kept_end == two.scanned_end == 20
    assert two.filtered_end_offset is None
    assert b"".join(bytes(piece) for piece in two.pieces) == log[: 2 * 148]


def test_the_first_batch_is_whole_on_request() -> None:
    log = log_of(1000, 1000)
    assert select(log, 10).size_bytes == 1048
    nothing = select(log, 10, first_whole=False)
    assert nothing.is_empty
    assert nothing.budget_reached


def test_the_budget_counts_what_is_answered_and_the_poll_what_is_stored() -> None:
    log = log_of(100, 100, 100)
    found = select(log, 160, project=half)
    assert found.size_bytes == 2 * 74
    assert found.scanned_bytes == 2 * 148
    assert found.budget_reached


def test_empty_batches_cost_no_budget_and_move_the_reader() -> None:
    log = log_of(0, 100, 0, 0)
    found = select(log, 148, project=half)
    assert found.size_bytes == 74
    assert found.kept_end == 13
    assert len(found.pieces) == 4


def test_with_filter_and_projection_empty_batches_are_left_out() -> None:
    found = select(log_of(0, 100, 0), 10_000, project=half, keep=lambda *_: True)
    assert len(found.pieces) == 1
    assert found.filtered_end_offset == 12


def test_dropped_batches_behind_the_last_kept_one_are_reported() -> None:
    log = log_of(100, 100, 100)
    found = select(log, 10_000, keep=lambda _, __, header: header.base_offset == 0)
    assert found.kept_end == 10
    assert found.filtered_end_offset == 30
    middle = select(log, 10_000, keep=lambda _, __, header: header.base_offset != 10)
    assert middle.filtered_end_offset is None
    assert middle.size_bytes == 2 * 148
    none = select(log, 10_000, keep=lambda *_: False)
    assert none.is_empty
    assert none.filtered_end_offset == 30


def test_a_full_budget_hides_the_filtered_end() -> None:
    log = log_of(100, 100, 100)
    found = select(log, 148, keep=lambda _, __, header: header.base_offset != 10)
    assert found.budget_reached
    assert found.scanned_end == 20
    assert found.filtered_end_offset is None


def test_a_scan_ends_after_its_limit_and_reports_how_far_it_came() -> None:
    log = log_of(*[8] * (MAX_SCANNED_BATCHES + 5))
    found = select(log, 10**9, keep=lambda *_: False)
    assert found.scan_limit_reached
    assert found.filtered_end_offset == MAX_SCANNED_BATCHES * 10
