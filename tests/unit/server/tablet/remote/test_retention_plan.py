"""Rules that decide which segments are uploaded, deleted or kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fluss.model.paths import TableBucket, TablePath
from fluss.server.tablet.remote.manifest import RemoteManifest, RemoteSegment
from fluss.server.tablet.remote.retention_plan import (
    LocalSegment,
    expired_remote_segments,
    local_delete_offset_after_upload,
    local_delete_offset_by_age,
    segments_to_upload,
)

SEALED = [LocalSegment(0, 10, 100), LocalSegment(10, 20, 200), LocalSegment(20, 30, 300)]


def manifest(*ends: int, start: int = 0, highest: int = -1) -> RemoteManifest:
    segments = []
    for end in ends:
        segments.append(RemoteSegment(f"s{end}", start, end, end * 10, 1))
        start = end
    return RemoteManifest(TablePath("db", "t"), TableBucket(1, None, 0), None, tuple(segments), highest)


def test_uploads_follow_the_uploaded_end_in_order() -> None:
    assert segments_to_upload(SEALED, manifest(), 30, 5) == [0, 1, 2]
    assert segments_to_upload(SEALED, manifest(10), 30, 5) == [1, 2]
    assert segments_to_upload(SEALED, manifest(10), 30, 1) == [1]
    assert segments_to_upload(SEALED, manifest(10, 20, 30), 30, 5) == []


def test_nothing_above_the_high_watermark_is_uploaded() -> None:
    assert segments_to_upload(SEALED, manifest(), 29, 5) == [0, 1]


def test_an_upload_never_leaves_a_gap() -> None:
    # The uploaded end lies where no local segment begins: rather no upload than one that cannot be joined.
    assert segments_to_upload(SEALED, manifest(5), 30, 5) == []
    assert segments_to_upload(SEALED[1:], manifest(), 30, 5) == [0, 1]
    assert segments_to_upload(SEALED[2:], manifest(10), 30, 5) == []


def test_uploads_continue_after_segments_that_expired_remotely() -> None:
    assert segments_to_upload(SEALED, manifest(highest=20), 30, 5) == [2]
    # Tiering was off for a while, and what came next has expired locally meanwhile.
    assert segments_to_upload(SEALED[1:], manifest(highest=5), 30, 5) == [0, 1]


def test_local_copies_are_deleted_after_upload_but_the_newest_stay() -> None:
    assert local_delete_offset_after_upload(SEALED, 30, 2) == 20
    assert local_delete_offset_after_upload(SEALED, 30, 1) == 30
    assert local_delete_offset_after_upload(SEALED, 30, 4) == -1
    assert local_delete_offset_after_upload(SEALED, 10, 1) == 10
    assert local_delete_offset_after_upload(SEALED, -1, 1) == -1


def test_old_local_segments_are_deleted_up_to_the_first_young_one() -> None:
    assert local_delete_offset_by_age(SEALED, 1200, 950, 30) == 20
    assert local_delete_offset_by_age(SEALED, 1200, 950, 19) == 10
    assert local_delete_offset_by_age(SEALED, 1200, 0, 30) == -1
    young_first = [LocalSegment(0, 10, 900), *SEALED[1:]]
    assert local_delete_offset_by_age(young_first, 1200, 950, 30) == -1


def test_remote_segments_expire_oldest_first() -> None:
    assert expired_remote_segments(manifest(10, 20, 30), 1200, 950) == 2
    assert expired_remote_segments(manifest(10, 20, 30), 1200, 0) == 0
    assert expired_remote_segments(manifest(), 1200, 1) == 0


def test_remote_segments_that_the_lake_does_not_have_stay() -> None:
    assert expired_remote_segments(manifest(10, 20, 30), 1200, 950, 20) == 2
    assert expired_remote_segments(manifest(10, 20, 30), 1200, 950, 19) == 1
    assert expired_remote_segments(manifest(10, 20, 30), 1200, 950, 0) == 0


@given(
    ends=st.lists(st.integers(1, 50), max_size=8, unique=True).map(sorted),
    uploaded=st.integers(-1, 60),
    keep=st.integers(1, 5),
    now=st.integers(0, 100),
    ttl=st.integers(0, 50),
    bound=st.integers(-1, 60),
)
def test_deletions_are_always_within_bounds(
    ends: list[int], uploaded: int, keep: int, now: int, ttl: int, bound: int
) -> None:
    starts = [0, *ends]
    sealed = [LocalSegment(base, end, end) for base, end in zip(starts, ends, strict=False)]
    after_upload = local_delete_offset_after_upload(sealed, uploaded, keep)
    assert after_upload <= uploaded
    left = [segment for segment in sealed if segment.next_offset > after_upload]
    assert after_upload == -1 or len(left) + 1 >= keep
    by_age = local_delete_offset_by_age(sealed, now, ttl, bound)
    assert by_age <= bound
    assert all(now - segment.newest_ms > ttl for segment in sealed if segment.next_offset <= by_age)
