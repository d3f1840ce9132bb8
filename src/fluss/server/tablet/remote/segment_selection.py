"""Selection of remote segments for a fetch or a lookup of an offset, without I/O."""

from __future__ import annotations

from bisect import bisect_right

from fluss.server.tablet.remote.manifest import RemoteManifest, RemoteSegment

# A fetch answer names at most this many segments; clients keep four at a time and fetch again afterwards.
MAX_SEGMENTS_PER_ANSWER = 64


def segments_from(manifest: RemoteManifest, offset: int) -> tuple[RemoteSegment, ...]:
    """The remote segment with `offset` and those after it; empty if the offset is not in remote storage."""
    segments = manifest.segments
    if not segments or offset < segments[0].start_offset or offset >= segments[-1].end_offset:
        return ()
    first = bisect_right(segments, offset, key=lambda segment: segment.start_offset) - 1
    return segments[first : first + MAX_SEGMENTS_PER_ANSWER]


def first_segment_with_timestamp(manifest: RemoteManifest, timestamp: int, below: int) -> RemoteSegment | None:
    """The first remote segment that starts below offset `below` and has a batch at or after `timestamp`."""
    for segment in manifest.segments:
        if segment.start_offset >= below:
            return None
        if segment.max_timestamp >= timestamp:
            return segment
    return None
