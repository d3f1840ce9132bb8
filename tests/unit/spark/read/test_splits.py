"""How ranges of offsets become tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fluss.spark.read.splits import (
    MAX_SPLITS_PER_BUCKET,
    MIN_SPLIT_BYTES,
    TARGET_SPLIT_BYTES,
    BucketRange,
    cut,
    first_rows,
    interleaved,
    split_bytes,
)

ranges = st.builds(
    lambda start, count: BucketRange(None, 0, start, start + count, since_ms=5),
    st.integers(0, 1000),
    st.integers(0, 100_000),
)


@given(ranges, st.none() | st.integers(1, 5000), st.none() | st.integers(1, 10_000), st.floats(0, 1000))
def test_pieces_cover_the_range_without_gap_or_overlap(
    each: BucketRange, max_rows: int | None, max_bytes: int | None, row_bytes: float
) -> None:
    pieces = cut(each, max_rows, max_bytes, row_bytes)
    assert [offset for piece in pieces for offset in (piece.start, piece.stop)] == sorted(
        offset for piece in pieces for offset in (piece.start, piece.stop)
    )
    assert sum(piece.count for piece in pieces) == each.count
    assert all(piece.count > 0 and piece.since_ms == 5 for piece in pieces)
    if pieces:
        assert (pieces[0].start, pieces[-1].stop) == (each.start, each.stop)
        assert max(piece.count for piece in pieces) - min(piece.count for piece in pieces) <= 1
    if max_rows is not None and len(pieces) < MAX_SPLITS_PER_BUCKET:
        assert all(piece.count <= max_rows for piece in pieces)


@given(st.lists(ranges, max_size=4), st.integers(0, 200_000))
def test_a_limit_takes_the_first_offsets(given_ranges: list[BucketRange], limit: int) -> None:
    chosen = first_rows(given_ranges, limit)
    assert sum(each.count for each in chosen) == min(limit, sum(each.count for each in given_ranges))
    assert all(kept.start == whole.start for kept, whole in zip(chosen, given_ranges, strict=False))


def test_the_size_of_a_split_keeps_the_cores_busy() -> None:
    assert split_bytes(10 * 1024, 2) == MIN_SPLIT_BYTES
    assert split_bytes(100 * 2**20, 2) == 30 * 2**20
    assert split_bytes(2**40, 2) == TARGET_SPLIT_BYTES


def test_concurrent_tasks_read_different_buckets() -> None:
    groups = [[BucketRange(None, bucket, start, start + 1) for start in range(bucket + 1)] for bucket in range(3)]
    order = [(each.bucket_id, each.start) for each in interleaved(groups)]
    assert order == [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (2, 2)]
    assert interleaved([]) == []
