"""Which segments are uploaded, deleted or expired: decisions without I/O.

A `LocalSegment` is what these rules need to know of a local segment. Lists are in offset order and end with the active
segment, which no rule ever touches. Every rule looks at the *oldest* segments first and stops at the first one that has
to stay, so what remains is always one unbroken range of offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from fluss.server.tablet.remote.manifest import RemoteManifest, RemoteSegment

FOREVER_MS = 0


class LocalSegment(NamedTuple):
    """One local segment; `next_offset` is the base offset of its successor.

    `newest_ms` is when its newest row was written, as far as one can know: see `written_ms`.
    """

    base_offset: int
    next_offset: int
    newest_ms: int


def written_ms(max_timestamp: int, now_ms: int, file_time_ms: Callable[[], int]) -> int:
    """When the newest row of a segment was written.

    Times of batches never go back, so a clock that was ahead once would stop retention until its time has come. Such a
    time is in the future; the time of the file, if it is earlier, is nearer to the truth. A time in the past stands:
    files that were copied or unpacked may have any time, and rows must not go because of that.
    """
    return max_timestamp if max_timestamp <= now_ms else min(max_timestamp, file_time_ms())


def segments_to_upload(
    sealed: Sequence[LocalSegment], manifest: RemoteManifest, high_watermark: int, most: int
) -> list[int]:
    """Positions in `sealed` of the next segments to upload, oldest first, at most `most`.

    Only what is complete and below the high watermark goes, and only in an unbroken row behind the uploaded end.
    """
    end = manifest.end_offset
    chosen: list[int] = []
    for position, segment in enumerate(sealed):
        if len(chosen) == most or segment.next_offset > high_watermark:
            break
        if segment.next_offset <= end:
            continue
        # Behind a manifest without segments there is nothing to join to: whatever is the next may begin a new row.
        if (manifest.segments or chosen) and segment.base_offset != end:
            break
        chosen.append(position)
        end = segment.next_offset
    return chosen


def local_delete_offset_after_upload(sealed: Sequence[LocalSegment], uploaded_end: int, keep_segments: int) -> int:
    """Offset up to which local segments may go because they lie in remote storage; -1 for none.

    `keep_segments` counts the active segment too, so at least that one always stays.
    """
    deletable = sealed[: max(0, len(sealed) + 1 - max(1, keep_segments))]
    return _last_allowed(deletable, uploaded_end)


def local_delete_offset_by_age(sealed: Sequence[LocalSegment], now_ms: int, ttl_ms: int, bound: int) -> int:
    """Offset up to which local segments are too old; -1 for none.

    `bound` is the uploaded end where remote storage is used, else the high watermark: nothing beyond it may go.
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
    """How many of the oldest remote segments are too old; nothing beyond `bound` is."""
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
