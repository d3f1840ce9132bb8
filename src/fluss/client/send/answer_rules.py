"""The reaction to the answer to a batch: a pure function, so that every rule can be tested on its own.

A batch that the server finds damaged (14) is sent three times, since a bit may have flipped on the way; if the same
bytes are refused three times, they are bad themselves. They were not written, so the batches after them move up.

The rules are those of both reference clients, with two differences for a batch that the server refuses although it is
the next one (code 31 for exactly the next sequence, or 33). If no earlier attempt of it ended in doubt, the server no
longer knows the writer: the batch was not written and is sent again under a new writer id instead of being lost. If one
did, and later batches are in doubt too, the server may have written them all: after a restart Apache Fluss remembers
only the last batch of a writer. The last of them decides, because a bucket takes batches in order: if it is known, so
were all before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from fluss.errors import ErrorCode

# 9: a tablet of a cluster learns of a new schema shortly after the client; ids only grow, so it will soon know it.
RETRIED_CODES = frozenset({1, 3, 9, 10, 11, 12, 14, 21, 25, 26, 28, 29, 44, 72})
# The leader may have changed.
STALE_METADATA_CODES = frozenset({1, 12, 21, 36, 44})
# It is unknown whether the server wrote the batch.
DOUBTFUL_CODES = frozenset({1, 3, 10, 11, 25, 26, 28})
# Codes after which the batch is certainly not in the log, so the next one may take its number. After any other final
# answer it may be there, and the server would acknowledge a new batch with its number as a repetition and drop the
# rows. That includes -1, -2, an answer without the bucket, and all codes that later servers may send.
NOT_WRITTEN_CODES: Mapping[int, str] = {
    ErrorCode.UNSUPPORTED_VERSION: "refused before the request is read, or never sent",
    ErrorCode.TABLE_NOT_EXIST: "the table is looked up first; a new table has another id",
    ErrorCode.RECORD_TOO_LARGE_EXCEPTION: "the size is checked before the append",
    ErrorCode.CORRUPT_RECORD_EXCEPTION: "the checksum and header are checked before the append",
    ErrorCode.INVALID_TABLE_EXCEPTION: "the kind of the table is checked first",
    ErrorCode.INVALID_REQUIRED_ACKS: "the request is checked first",
    ErrorCode.NON_PRIMARY_KEY_TABLE_EXCEPTION: "the kind of the table is checked first",
    ErrorCode.INVALID_TARGET_COLUMN: "the columns are checked before the rows are merged",
    ErrorCode.PARTITION_NOT_EXISTS: "the partition is looked up first; a new partition has another id",
    ErrorCode.AUTHENTICATE_EXCEPTION: "a connection without a login takes no requests",
    ErrorCode.AUTHORIZATION_EXCEPTION: "permissions are checked first",
    ErrorCode.RETRIABLE_AUTHENTICATE_EXCEPTION: "a connection without a login takes no requests",
    ErrorCode.DELETION_DISABLED_EXCEPTION: "deletes are checked before the changelog is written",
    ErrorCode.DISK_WRITE_LOCKED: "checked before the append; a batch that did not fit is cut off again",
}
MAX_WRITER_RESETS_PER_BATCH = 3
MAX_CORRUPT_ANSWERS_PER_BATCH = 3


class Reaction(Enum):
    """RESET and FAIL_AND_RESET also drop the writer id, so that sequences start again at 0.

    ASK_LATER: decide again when the answers to the later batches are known.
    """

    DONE = "done"
    RETRY = "retry"
    ASK_LATER = "ask later"
    RESET = "reset"
    FAIL = "fail"
    FAIL_AND_RESET = "fail and reset"


def react(
    code: int,
    sequence: int,
    acknowledged: int,
    *,
    idempotent: bool,
    in_doubt: bool,
    is_last: bool,
    attempts: int,
    retries: int,
    resets: int,
    corrupt_answers: int,
) -> Reaction:
    """`sequence` of the batch and the highest acknowledged one of its bucket (-1: none); `in_doubt` if an earlier
    attempt may have been written; `is_last` if no later batch was sent; `attempts` so far, including this one;
    `resets` counts the reactions RESET and ASK_LATER to it so far, `corrupt_answers` its answers 14, including this."""
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_EXCEPTION):
        return Reaction.DONE
    out_of_order = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION
    if idempotent and sequence <= acknowledged and (out_of_order or code in RETRIED_CODES):
        return Reaction.DONE  # only the answer was lost: a bucket takes batches in order
    if out_of_order and sequence != acknowledged + 1:
        return Reaction.RETRY  # an earlier batch has not arrived
    if out_of_order or code == ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION:
        if resets >= MAX_WRITER_RESETS_PER_BATCH or (in_doubt and (is_last or not out_of_order)):
            return Reaction.FAIL_AND_RESET
        return Reaction.ASK_LATER if in_doubt else Reaction.RESET
    if code == ErrorCode.CORRUPT_RECORD_EXCEPTION and corrupt_answers >= MAX_CORRUPT_ANSWERS_PER_BATCH:
        return Reaction.FAIL_AND_RESET if in_doubt else Reaction.FAIL
    if code in RETRIED_CODES and attempts <= retries:
        return Reaction.RETRY
    # The fate of a batch in doubt is unknown, and so are the numbers after it.
    may_be_written = idempotent and code not in NOT_WRITTEN_CODES
    return Reaction.FAIL_AND_RESET if in_doubt or may_be_written or code in RETRIED_CODES else Reaction.FAIL
