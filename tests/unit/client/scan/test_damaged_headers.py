"""Batches whose headers are damaged: a scan names them, and gets past them if it is told to, with nothing else lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fluss.client.decode.bad_batches import BadBatch
from fluss.client.decode.log_walk import walk
from fluss.codec.batches.log_batch import iter_batches, read_header
from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.client_payloads import FetchAnswer
from tests.unit.client.scan.test_fetcher import Scan, ScriptedCluster, answer, records, run
from tools.waiting import eventually

ROWS_PER_BATCH = 3
BATCHES = 5
END = BATCHES * ROWS_PER_BATCH
HEADER_BYTES = 48
# The server writes these, and no reader needs them: a flipped bit is not noticed.
COMMIT_TIMESTAMP = range(13, 21)
# Lowest bytes of base offset, length, magic, checksum, schema id, attributes, offset delta, record count, and others.
FIELDS = (0, 2, 8, 10, 12, 21, 25, 27, 28, 31, 44, 47)
MAX_FETCHES = 12


def log_of(count: int = BATCHES) -> bytearray:
    return bytearray(b"".join(records(number * ROWS_PER_BATCH, ROWS_PER_BATCH) for number in range(count)))


class DamagedServer(ScriptedCluster):
    """Serves a log as it is, from the batch that had an offset before the log was damaged."""

    def __init__(self, log: bytearray, answer_bytes: int | None = None) -> None:
        super().__init__()
        self.log = memoryview(log)
        self.starts = [position for position, _ in iter_batches(log_of())]
        self.answer_bytes = answer_bytes

    async def call_coordinator(self, *question: object, **options: object) -> None:
        """The only question is for a schema, and the table has one."""
        raise FlussError("table 'db.t' has no such schema", ErrorCode.SCHEMA_NOT_EXIST)

    async def fetch(self, request: pb.FetchLogRequest) -> FetchAnswer:
        offset = request.tables_req[0].buckets_req[0].fetch_offset
        if offset < END:
            assert len(self.requests) < MAX_FETCHES, "it goes round in circles"
            start = self.starts[offset // ROWS_PER_BATCH]
            end = None if self.answer_bytes is None else start + self.answer_bytes
            found = answer(b0=self.log[start:end])
            found.message.tables_resp[0].buckets_resp[0].high_watermark = END
            self.script.append(found)
        return await super().fetch(request)


async def read(server: DamagedServer, ids: list[int], **plan: Any) -> int:
    """Rows up to the end of the log, added to `ids` as they come, and the position behind them."""
    scan = Scan(server, 0, **plan)

    def done() -> bool:
        ids.extend(value for rows in scan.queue.take() for value in rows.rows.column(0).to_pylist())
        return scan.subscriptions[0].position >= END

    try:
        await eventually(done, "the end of the log", seen=lambda: (ids, scan.subscriptions, server.requests[-1:]))
    finally:
        await scan.fetcher.close()
    return scan.subscriptions[0].position


@pytest.mark.parametrize("number", [0, 2, BATCHES - 1], ids=["first", "middle", "last"])
@pytest.mark.parametrize(
    ("places", "bit"),
    [(FIELDS, 0), *(pytest.param(range(HEADER_BYTES), bit, marks=pytest.mark.all) for bit in (0, 6))],
    ids=["fields", "low", "high"],
)
def test_every_byte_of_a_header_may_be_wrong(number: int, places: Sequence[int], bit: int) -> None:
    """All others are read, and exactly those of the damaged batch are named as left out."""

    async def body() -> None:
        starts = [position for position, _ in iter_batches(log_of())]
        lost = list(range(number * ROWS_PER_BATCH, (number + 1) * ROWS_PER_BATCH))
        for place in places:
            log = log_of()
            log[starts[number] + place] ^= 1 << bit
            skipped: list[BadBatch] = []
            ids: list[int] = []
            position = await read(DamagedServer(log), ids, on_skipped=skipped.append)
            named = [offset for bad in skipped for offset in range(bad.first_offset, bad.last_offset + 1)]
            assert sorted(ids + named) == list(range(END)), (place, named)
            assert position == END, place
            if place not in COMMIT_TIMESTAMP:
                assert named == lost, (place, skipped)

    run(body)


@pytest.mark.parametrize("place", FIELDS)
def test_without_skipping_the_error_names_bucket_and_offset(place: int) -> None:
    async def body() -> None:
        log = log_of()
        log[read_header(log).size * 2 + place] ^= 1 << 6
        ids: list[int] = []
        with pytest.raises(FlussError, match=r"bucket=0\) of db\.t: .*offsets? 6 ") as caught:
            await read(DamagedServer(log), ids)
        assert caught.value.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION
        assert ids == list(range(6)), "rows before it come first"

    run(body)


def test_nothing_sound_behind_the_damage_is_named_up_to_the_end() -> None:
    async def body() -> None:
        log = log_of()
        start = read_header(log).size * 2
        log[start:] = bytes(len(log) - start)
        skipped: list[BadBatch] = []
        ids: list[int] = []
        await read(DamagedServer(log), ids, on_skipped=skipped.append)
        assert ids == list(range(6))
        assert [(bad.first_offset, bad.last_offset) for bad in skipped] == [(6, END - 1)]
        with pytest.raises(FlussError, match=r"from offset 6 on is not a batch: .*invalid length 0"):
            await read(DamagedServer(log), [])

    run(body)


def test_columns_that_were_cut_out_are_fetched_whole_to_find_the_way() -> None:
    async def body() -> None:
        log = log_of()
        log[read_header(log).size * 2 + 8] ^= 1  # its length
        skipped: list[BadBatch] = []
        server = DamagedServer(log)
        # The scripted server does not cut columns out, so that only the damage decides which requests want whole rows.
        scan = Scan(server, 0, projection=(0,), on_skipped=skipped.append)
        await eventually(lambda: bool(scan.queue.take()) or len(server.requests) > 1, "a second fetch")
        await scan.fetcher.close()
        assert [each.tables_req[0].projection_pushdown_enabled for each in server.requests[:2]] == [True, False]

    run(body)


def test_a_walk_believes_offsets_that_fit_together() -> None:
    log = log_of()
    size = read_header(log).size
    assert walk(memoryview(log), 1).next_offset == END
    behind_a_gap = memoryview(bytes(log[:size]) + bytes(log[2 * size :]))
    assert (walk(behind_a_gap).end, walk(behind_a_gap).next_offset) == (size, 3)
    assert "offset 6, expected 3" in str(walk(behind_a_gap).fault)
    assert walk(behind_a_gap, has_gaps=True).next_offset == END
    assert "offset 3, expected 2" in str(walk(memoryview(log)[size:], 2).fault)
