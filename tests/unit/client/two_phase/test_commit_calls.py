"""How long a commit insists: which errors are waited out, and that the deadline ends it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fluss.client.two_phase import commit_calls
from fluss.client.two_phase.commit_calls import Commit
from fluss.errors import ErrorCode, FlussError


def commit(timeout_seconds: float) -> Commit:
    cluster: Any = SimpleNamespace(closed=False)
    table: Any = SimpleNamespace(table_id=1)
    return Commit(cluster, table, "query", 0, timeout_seconds)


class Step:
    """Fails with these codes, one after the other, then succeeds."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.codes:
            raise FlussError("not now", self.codes.pop(0))
        return "done"


def test_what_may_pass_is_tried_again() -> None:
    step = Step(ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIME_OUT)
    assert asyncio.run(commit(30)._insist(step)) == "done"
    assert step.calls == 4


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.DISK_WRITE_LOCKED,
        ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION,
        ErrorCode.TABLE_NOT_EXIST,
        ErrorCode.PARTITION_NOT_EXISTS,
        ErrorCode.AUTHORIZATION_EXCEPTION,
        ErrorCode.UNSUPPORTED_VERSION,
    ],
)
def test_what_will_not_pass_is_told_at_once(code: ErrorCode) -> None:
    step = Step(code)
    with pytest.raises(FlussError) as caught:
        asyncio.run(commit(30)._insist(step))
    assert (caught.value.error_code, step.calls) == (code, 1)


def test_the_deadline_ends_it_with_the_last_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that goes on with pauses only: how many tries there is time for does not depend on the machine."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(commit_calls, "time", SimpleNamespace(monotonic=lambda: sum(pauses)))
    monkeypatch.setattr(commit_calls, "asyncio", SimpleNamespace(sleep=pause))
    step = Step(*[int(ErrorCode.NETWORK_EXCEPTION)] * 1000)
    with pytest.raises(FlussError, match="not now"):
        asyncio.run(commit(10)._insist(step))
    assert step.calls == len(pauses) + 1
    assert 10 - commit_calls.LAST_PAUSE_SECONDS < sum(pauses) <= 10
