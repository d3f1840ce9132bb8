"""The reactions of a scanner to errors: pure functions of error codes."""

from __future__ import annotations

from enum import Enum

from fluss.errors import ErrorCode

FIRST_PAUSE_SECONDS = 0.02
LAST_PAUSE_SECONDS = 1.0


class Reaction(Enum):
    """`MOVED`: the leader is elsewhere, locate it, then fetch again. `RETRY`: fetch again after a pause.
    `WHOLE_ROWS`: the server cannot project these batches, fetch them whole. `RAISE`: report it to the user."""

    MOVED = "moved"
    RETRY = "retry"
    WHOLE_ROWS = "whole rows"
    RAISE = "raise"


_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION,
        ErrorCode.FENCED_LEADER_EPOCH_EXCEPTION,
        ErrorCode.LEADER_NOT_AVAILABLE_EXCEPTION,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIME_OUT,
    }
)
_RETRY = frozenset(
    {
        ErrorCode.LOG_STORAGE_EXCEPTION,
        ErrorCode.KV_STORAGE_EXCEPTION,
        ErrorCode.STORAGE_EXCEPTION,
        ErrorCode.DISK_WRITE_LOCKED,  # a bucket that cannot be opened because the disk is full
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


def bucket_reaction(code: int, *, projected: bool) -> Reaction:
    """The reaction to an error of one bucket in an answer."""
    if code in _MOVED:
        return Reaction.MOVED
    if code in _RETRY:
        return Reaction.RETRY
    if code == ErrorCode.INVALID_COLUMN_PROJECTION and projected:
        return Reaction.WHOLE_ROWS
    return Reaction.RAISE


def request_reaction(code: int) -> Reaction:
    """The reaction to an error of a whole request, or of a metadata request."""
    if code in _MOVED or code in (ErrorCode.PARTITION_NOT_EXISTS, ErrorCode.UNKNOWN_SERVER_ERROR):
        return Reaction.MOVED
    if code in _RETRY:
        return Reaction.RETRY
    return Reaction.RAISE


def next_pause_seconds(pause_seconds: float) -> float:
    """The next pause: twice as long, up to the longest."""
    return min(pause_seconds * 2, LAST_PAUSE_SECONDS) if pause_seconds else FIRST_PAUSE_SECONDS
