"""Rules that decide which segments are uploaded, deleted or expired, without I/O.

A `LocalSegment` has what these rules need to know about a local segment. Lists are in offset order and have only sealed
segments; no rule ever touches the active one. Every rule begins with the *oldest* segments and stops at the first one
that has to stay, so the rest is always one contiguous range of offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from fluss.server.tablet.remote.manifest import RemoteManifest, RemoteSegment

FOREVER_MS = 0


class LocalSegment(NamedTuple):
    """One local segment; `next_offset` is the base offset of its successor.

    `newest_ms` is the time of its newest row, as far as it is known: see `written_ms`.
    """

    base_offset: int
    next_offset: int
    newest_ms: int


def written_ms(max_timestamp: int, now_ms: int, file_time_ms: Callable[[], int]) -> int:
    """The time at which the newest row of a segment was written.

    Timestamps of batches never decrease, so a clock that was ahead once would stop retention until that time has come.
    A timestamp in the future is therefore replaced by the time of the file if that is earlier. A timestamp in the past
    is used as it is: copied or unpacked files may have any time, and rows must not be deleted because of it.
    """
    return max_timestamp if max_timestamp <= now_ms else min(max_timestamp, file_time_ms())


def segments_to_upload(
    sealed: Sequence[LocalSegment], manifest: RemoteManifest, high_watermark: int, most: int
) -> list[int]:
    """The positions in `sealed` of the next segments to upload, oldest first, at most `most`.

    Only segments below the high watermark are uploaded, without gaps after the uploaded end.
    """
    end = manifest.end_offset
    chosen: list[int] = []
    for position, segment in enumerate(sealed):
        if len(chosen) == most or segment.next_offset > high_watermark:
            break
        if segment.next_offset <= end:
            continue
        # If the manifest has no segments, there is nothing to continue: the next segment may begin anywhere.
        if (manifest.segments or chosen) and segment.base_offset != end:
            break
        chosen.append(position)
        end = segment.next_offset
    return chosen


def local_delete_offset_after_upload(sealed: Sequence[LocalSegment], uploaded_end: int, keep_segments: int) -> int:
    """The offset up to which local segments may be deleted because they are in remote storage; -1 for none.

    `keep_segments` includes the active segment, which always stays.
    """
    deletable = sealed[: max(0, len(sealed) + 1 - max(1, keep_segments))]
    return _last_allowed(deletable, uploaded_end)


def local_delete_offset_by_age(sealed: Sequence[LocalSegment], now_ms: int, ttl_ms: int, bound: int) -> int:
    """The offset up to which local segments are too old; -1 for none.

    Nothing beyond `bound` may be deleted: it is the uploaded end if remote storage is used, else the high watermark.
    """
    if ttl_ms == FOREVER_MS:
        return -1
    old = 0
    while old < len(sealed) and now_ms - sealed[old].newest_ms > ttl_ms:
        old += 1
    return _last_allowed(sealed[:old], bound)


def expired_remote_segments(
    manifest: RemoteManifest,
    now_ms: int,
    ttl_ms: int,
    bound: int | None = None,
    written: Callable[[RemoteSegment], int] = attrgetter("max_timestamp"),
) -> int:
    """The number of remote segments that have expired, counted from the oldest and up to `bound`."""
    if ttl_ms == FOREVER_MS:
        return 0
    expired = 0
    for segment in manifest.segments:
        if now_ms - written(segment) <= ttl_ms or (bound is not None and segment.end_offset > bound):
            break
        expired += 1
    return expired


def _last_allowed(segments: Sequence[LocalSegment], bound: int) -> int:
    offset = -1
    for segment in segments:
        if segment.next_offset > bound:
            break
        offset = segment.next_offset
    return offset
