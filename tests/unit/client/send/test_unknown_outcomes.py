"""Batches that were written although the client is told otherwise, or nothing: no later row is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fluss.client.send.sender import Sender
from fluss.errors import ErrorCode, FlussError
from tests.unit.client.send.test_sender import FakeCluster, Request, run, settled, write


def answer_unknown(request: Request) -> None:
    request.answer(ErrorCode.UNKNOWN_SERVER_ERROR)


def leave_out(request: Request) -> None:
    request.answer(leave_out=True)


def fail_here(request: Request) -> None:
    request.future.set_exception(RuntimeError("a defect of the client"))


@pytest.mark.parametrize("end", [answer_unknown, leave_out, fail_here])
def test_a_batch_that_was_written_and_reported_as_failed_hides_no_later_rows(end: Callable[[Request], None]) -> None:
    kept: dict[tuple[int, int], int] = {}  # writer id and sequence, as a server recognises repetitions

    def append(request: Request) -> None:
        ((_, writer_id, sequence),) = request.numbers
        is_repeated = (writer_id, sequence) in kept
        kept.setdefault((writer_id, sequence), len(kept))
        request.answer(ErrorCode.DUPLICATE_SEQUENCE_EXCEPTION if is_repeated else 0)

    async def body(cluster: FakeCluster, sender: Sender) -> None:
        first = write(sender)
        append(await cluster.next())
        await settled(first)
        lost = write(sender)
        request = await cluster.next()
        kept[request.numbers[0][1:]] = len(kept)  # written, but the client is not told
        end(request)
        with pytest.raises(FlussError):
            await settled(lost)
        later = [write(sender), write(sender)]
        for _ in later:
            append(await cluster.next())
        await settled(*later)
        assert len(kept) == 4, "a later row was taken for a repetition"
        assert cluster.writer_ids == 2

    run(body)


def test_a_put_whose_store_failed_is_not_sent_under_another_id() -> None:
    """Code 11 is also the answer to a put that is in the changelog already, which the server then replays."""

    async def body(cluster: FakeCluster, sender: Sender) -> None:
        stored, failed = write(sender), write(sender)
        first, second = await cluster.next(), await cluster.next()
        first.answer(ErrorCode.KV_STORAGE_EXCEPTION)
        second.answer(ErrorCode.UNKNOWN_SERVER_ERROR)
        with pytest.raises(FlussError, match="scripted -1"):
            await settled(failed)
        with pytest.raises(FlussError, match="may or may not have been written"):
            await settled(stored)
        assert cluster.requests.empty()

    run(body)


def test_a_put_whose_store_failed_is_sent_again_with_its_number() -> None:
    async def body(cluster: FakeCluster, sender: Sender) -> None:
        stored = write(sender)
        (await cluster.next()).answer(ErrorCode.KV_STORAGE_EXCEPTION)
        again = await cluster.next()
        assert again.numbers == [(0, 100, 0)]
        again.answer(ErrorCode.DUPLICATE_SEQUENCE_EXCEPTION)
        await settled(stored)

    run(body)
