"""The rules about answers, one by one."""

from __future__ import annotations

import pytest

from fluss.client.send.answer_rules import (
    DOUBTFUL_CODES,
    MAX_WRITER_RESETS_PER_BATCH,
    NOT_WRITTEN_CODES,
    RETRIED_CODES,
    Reaction,
    react,
)
from fluss.errors import ErrorCode


def reaction(
    code: int,
    sequence: int = 5,
    acknowledged: int = 4,
    *,
    idempotent: bool = True,
    in_doubt: bool = False,
    is_last: bool = True,
    attempts: int = 1,
    retries: int = 10,
    resets: int = 0,
    corrupt_answers: int = 1,
) -> Reaction:
    return react(
        code, sequence, acknowledged, idempotent=idempotent, in_doubt=in_doubt, is_last=is_last, attempts=attempts,
        retries=retries, resets=resets, corrupt_answers=corrupt_answers,
    )  # fmt: skip


def test_written_is_done() -> None:
    assert reaction(0) is Reaction.DONE
    assert reaction(32) is Reaction.DONE


@pytest.mark.parametrize("code", sorted({*RETRIED_CODES, 31}))
def test_what_is_before_an_acknowledged_batch_is_done(code: int) -> None:
    assert reaction(code, sequence=4) is Reaction.DONE
    assert reaction(code, sequence=3) is Reaction.DONE


@pytest.mark.parametrize("code", sorted(RETRIED_CODES))
def test_passing_troubles_are_retried_until_retries_end(code: int) -> None:
    assert reaction(code) is Reaction.RETRY
    assert reaction(code, attempts=10) is Reaction.RETRY
    assert reaction(code, attempts=11) is Reaction.FAIL_AND_RESET
    assert reaction(code, sequence=3, idempotent=False) is Reaction.RETRY


def test_the_same_bytes_are_refused_as_damaged_three_times() -> None:
    assert reaction(14, corrupt_answers=2, attempts=9) is Reaction.RETRY
    assert reaction(14, corrupt_answers=3) is Reaction.FAIL
    assert reaction(14, corrupt_answers=3, in_doubt=True) is Reaction.FAIL_AND_RESET
    assert reaction(14, corrupt_answers=2, attempts=11) is Reaction.FAIL_AND_RESET
    assert reaction(25, corrupt_answers=3) is Reaction.RETRY


def test_out_of_order() -> None:
    assert reaction(31, sequence=7) is Reaction.RETRY
    assert reaction(31) is Reaction.RESET
    assert reaction(31, in_doubt=True) is Reaction.FAIL_AND_RESET
    assert reaction(31, resets=MAX_WRITER_RESETS_PER_BATCH) is Reaction.FAIL_AND_RESET
    assert reaction(33, sequence=7) is Reaction.RESET


def test_those_behind_a_batch_in_doubt_decide() -> None:
    assert reaction(31, in_doubt=True, is_last=False) is Reaction.ASK_LATER
    assert reaction(31, in_doubt=True, is_last=False, resets=MAX_WRITER_RESETS_PER_BATCH) is Reaction.FAIL_AND_RESET
    assert reaction(33, in_doubt=True, is_last=False) is Reaction.FAIL_AND_RESET  # forgotten: the outcome is unknown
    assert reaction(31, is_last=False) is Reaction.RESET


@pytest.mark.parametrize("code", sorted(NOT_WRITTEN_CODES))
def test_a_batch_that_was_certainly_not_written_fails_alone(code: int) -> None:
    last_answer = 3 if code == 14 else 1
    assert reaction(code, corrupt_answers=last_answer) is Reaction.FAIL
    assert reaction(code, corrupt_answers=last_answer, in_doubt=True) is Reaction.FAIL_AND_RESET


# Unknown errors of a server, errors of this client, and codes that no rule names, later ones included.
@pytest.mark.parametrize("code", [-2, -1, 4, 22, 27, 30, 39, 66, 71, 73, 74, 1000])
def test_after_an_unknown_outcome_the_numbers_are_not_used_again(code: int) -> None:
    assert reaction(code) is Reaction.FAIL_AND_RESET
    assert reaction(code, in_doubt=True) is Reaction.FAIL_AND_RESET


def test_every_code_has_one_rule() -> None:
    assert not NOT_WRITTEN_CODES.keys() & DOUBTFUL_CODES
    assert NOT_WRITTEN_CODES.keys() & RETRIED_CODES == {ErrorCode.CORRUPT_RECORD_EXCEPTION}
    assert not NOT_WRITTEN_CODES.keys() & {0, 31, 32, 33}
    assert all(NOT_WRITTEN_CODES.values())
