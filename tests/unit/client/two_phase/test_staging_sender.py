"""The rules for answers to staged batches."""

from __future__ import annotations

import pytest

from fluss.client.send.answer_rules import RETRIED_CODES, Reaction
from fluss.client.two_phase.staging_sender import stage_reaction
from fluss.errors import ErrorCode

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION


@pytest.mark.parametrize(
    ("code", "sequence", "acknowledged", "reaction"),
    [
        (0, 3, 2, Reaction.DONE),
        (ErrorCode.DUPLICATE_SEQUENCE_EXCEPTION, 3, 2, Reaction.DONE),
        (OUT_OF_ORDER, 4, 2, Reaction.RETRY),  # the one before it is still on its way
        (OUT_OF_ORDER, 3, 2, Reaction.FAIL),  # what was acknowledged is not there any more
        (OUT_OF_ORDER, 2, 2, Reaction.DONE),  # one behind it is there
        (ErrorCode.NETWORK_EXCEPTION, 2, 2, Reaction.DONE),
        (ErrorCode.NETWORK_EXCEPTION, 3, 2, Reaction.RETRY),
        (ErrorCode.DISK_WRITE_LOCKED, 3, 2, Reaction.FAIL),
        (ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION, 0, -1, Reaction.FAIL),
        (ErrorCode.AUTHORIZATION_EXCEPTION, 0, -1, Reaction.FAIL),
        (ErrorCode.UNSUPPORTED_VERSION, 0, -1, Reaction.FAIL),
    ],
)
def test_reactions(code: int, sequence: int, acknowledged: int, reaction: Reaction) -> None:
    assert stage_reaction(code, sequence, acknowledged, attempts=1, retries=5) is reaction


def test_retries_end() -> None:
    for code in RETRIED_CODES:
        assert stage_reaction(code, 0, -1, attempts=6, retries=5) is Reaction.FAIL


def test_the_same_bytes_are_refused_as_damaged_three_times() -> None:
    assert stage_reaction(14, 0, -1, attempts=2, retries=5) is Reaction.RETRY
    assert stage_reaction(14, 0, -1, attempts=3, retries=5) is Reaction.FAIL
    assert stage_reaction(25, 0, -1, attempts=3, retries=5) is Reaction.RETRY
