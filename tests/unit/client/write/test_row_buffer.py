"""Rows from many threads into chunks: none lost, none split, none under a wrong handle, all in order."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
import pytest

from fluss.client.net.io_thread import IoThread
from fluss.client.net.metadata import ClientTable
from fluss.client.send.acknowledgements import ChunkSpan, PendingResult, WriteResultHandle
from fluss.client.send.bucket_queue import Piece
from fluss.client.send.write_memory import MemoryBudget
from fluss.client.write.row_buffer import RowBuffer, _slices
from fluss.client.write.row_function import RowRules, append_source
from fluss.client.write.row_layout import LogRows
from fluss.codec.arrow.types import to_arrow_schema
from fluss.codec.batches.arrow_batch import decode_arrow_batch
from fluss.config import Config
from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import TablePath
from fluss.model.schema import Column, Schema
from fluss.model.types import BigIntType, IntType, StringType
from tools.waiting import patience, wait_until

SCHEMA = Schema((Column("writer", IntType()), Column("number", BigIntType()), Column("text", StringType())))
TABLE = ClientTable(TablePath("db", "t"), 1, 1, TableDescriptor(SCHEMA, bucket_count=1), 0, 0)
DEADLINE_SECONDS = patience(60.0)


class FakeSender:
    """Keeps pieces until `acknowledge`, or settles them in the next step of the loop."""

    def __init__(self, io: IoThread, options: dict[str, str], automatic: bool) -> None:
        self.config = Config(options)
        self.memory = MemoryBudget(self.config.writer_buffer_memory_size)
        self.busy: set[RowBuffer] = set()
        self.cluster = None
        self.unreported: list[Any] = []
        self.automatic = automatic
        self.error: FlussError | None = None
        self.waiting: list[Piece] = []
        self.written: list[tuple[int, int]] = []
        self.chunk_of: dict[tuple[int, int], int] = {}
        self._io = io

    def register(self, writer: RowBuffer) -> None: ...

    def add(self, piece: Piece) -> None:
        batches = [piece.rows]
        if piece.data is not None:
            batches = [
                cast("pa.RecordBatch", decode_arrow_batch(data, to_arrow_schema(SCHEMA))[0]) for data in piece.data
            ]
        for batch in batches:
            for row in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                self.written.append(row)
                self.chunk_of[row] = piece.chunk.number
        self.waiting.append(piece)

    def send(self) -> None:
        if self.automatic and self.waiting:
            self._io.loop.call_soon(self.acknowledge)

    def acknowledge(self) -> None:
        pieces, self.waiting = self.waiting, []
        for piece in pieces:
            self.memory.release(piece.size_bytes)
            piece.chunk.release(self.error)

    def acknowledge_soon(self) -> None:
        self._io.call_soon(self.acknowledge)


@pytest.fixture
def io() -> Iterator[IoThread]:
    io = IoThread.acquired()
    yield io
    io.release()


def conforming(buffer: RowBuffer, batch: Any) -> Any:
    """The batch as writers hand it over."""
    assert isinstance(buffer.form, LogRows)
    return buffer.form.arrow_input.conform(batch)


def make(
    io: IoThread, options: dict[str, str] | None = None, *, automatic: bool = True
) -> tuple[RowBuffer, FakeSender]:
    sender = FakeSender(io, options or {}, automatic)
    return RowBuffer(io, sender, TABLE), sender  # type: ignore[arg-type]


def wait(handle: WriteResultHandle) -> None:
    handle.wait().result(DEADLINE_SECONDS)


def flush(buffer: RowBuffer) -> None:
    PendingResult(buffer.begin_flush(), "flush()").result(DEADLINE_SECONDS)


def test_a_lone_row_leaves_at_once(io: IoThread) -> None:
    buffer, sender = make(io, {"writer.batch-timeout-ms": "600000"})
    for number in range(20):
        wait(buffer.append((0, number, "x")))
    assert sender.written == [(0, number) for number in range(20)]
    wait_until(lambda: buffer.idle, "nothing is left to do")
    assert not sender.busy
    assert sender.memory.used_bytes == 0


def test_rows_gather_while_others_are_on_their_way(io: IoThread) -> None:
    buffer, sender = make(io, {"writer.batch-timeout-ms": "600000"}, automatic=False)
    first = buffer.append((0, 0, "x"))
    wait_until(lambda: sender.waiting, "a chunk is sent")
    others = [buffer.append((0, number, "x")) for number in range(1, 30)]
    assert len(set(map(id, others))) == 1
    assert not first.is_done
    assert len(sender.waiting) == 1
    sender.acknowledge_soon()
    wait(first)
    wait_until(lambda: sender.waiting, "a chunk is sent")
    assert len(sender.waiting) == 1
    assert len(sender.written) == 30
    sender.acknowledge_soon()
    wait(others[0])


def test_a_partial_chunk_does_not_wait_for_ever_behind_others(io: IoThread) -> None:
    buffer, sender = make(io, {"writer.batch-timeout-ms": "20"}, automatic=False)
    buffer.append((0, 0, "x"))
    wait_until(lambda: len(sender.waiting) == 1, "a chunk is sent")
    buffer.append((0, 1, "x"))
    wait_until(lambda: len(sender.waiting) == 2, "one more is, though the first one is not acknowledged")
    sender.acknowledge_soon()


def with_switches(rules: RowRules, stored: str | None = None) -> str:
    """The generated function with an invitation to switch threads wherever one could do harm."""
    switch = "    __import__('time').sleep(0)\n"
    lines = append_source(rules, stored).splitlines(keepends=True)
    at = next(index for index, line in enumerate(lines) if line.startswith("    f += "))
    return "".join([*lines[:at], switch, lines[at], switch, *lines[at + 1 :]])


@pytest.mark.parametrize("forced", [False, True], ids=["as it is", "forced switches"])
def test_threads_append_and_take_at_once(io: IoThread, monkeypatch: pytest.MonkeyPatch, forced: bool) -> None:
    producers, rows, switch_seconds = 3, 20_000, 0.005
    if forced:
        rows, switch_seconds = 2_000, 1e-6
        monkeypatch.setattr("fluss.client.write.row_function.append_source", with_switches)
    # Without acknowledgements meanwhile, every chunk that a row can be in is part of its handle.
    buffer, sender = make(io, automatic=not forced)
    handles: dict[tuple[int, int], WriteResultHandle] = {}
    stop = threading.Event()

    def produce(name: int) -> None:
        for number in range(rows):
            handles[name, number] = buffer.append((name, number, "x"))

    def take() -> None:
        other = pa.record_batch({"number": [-1], "writer": [-1]})
        while not stop.is_set():
            buffer.begin_flush()
            buffer.write_batch(conforming(buffer, other))

    before = sys.getswitchinterval()
    sys.setswitchinterval(switch_seconds)
    try:
        takers = [threading.Thread(target=take) for _ in range(2)]
        threads = [threading.Thread(target=produce, args=(name,)) for name in range(producers)]
        for thread in (*takers, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        stop.set()
        for thread in takers:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    chunks = buffer.begin_flush()
    wait_until(lambda: not buffer._order, "all is on its way")
    sender.automatic = True
    sender.acknowledge_soon()
    PendingResult(chunks, "flush()").result(DEADLINE_SECONDS)
    assert sum(writer >= 0 for writer, _ in sender.written) == producers * rows
    for name in range(producers):
        numbers = [number for writer, number in sender.written if writer == name]
        assert numbers == list(range(rows)), "rows of a thread lost their order, or were lost"
    assert all(handle.is_done for handle in handles.values())
    if forced:
        for row, handle in handles.items():
            assert sender.chunk_of[row] in [chunk.number for chunk in handle._chunks()], "a row under a wrong handle"
        spans = sum(isinstance(handle, ChunkSpan) for handle in handles.values())
        assert spans > rows // 100, "hardly any race happened: the test does not test what it says"


def test_tasks_of_several_loops_wait_at_once(io: IoThread) -> None:
    buffer, sender = make(io)

    async def one(name: int, number: int) -> None:
        await buffer.append((name, number, "x")).wait()

    async def many(name: int) -> None:
        await asyncio.gather(*(one(name, number) for number in range(500)))

    threads = [threading.Thread(target=lambda name=name: asyncio.run(many(name))) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert sorted(sender.written) == [(name, number) for name in range(3) for number in range(500)]


def test_arrow_batches_keep_their_place_between_rows(io: IoThread) -> None:
    buffer, sender = make(io)
    expected = []
    for start in range(0, 3_000, 3):
        buffer.append((0, start, "x"))
        batch = pa.record_batch({"number": [start + 1, start + 2], "writer": pa.array([0, 0], pa.int64())})
        handle = buffer.write_batch(conforming(buffer, batch))
        expected += [(0, start), (0, start + 1), (0, start + 2)]
    wait(handle)
    flush(buffer)
    assert sender.written == expected


def test_a_large_batch_is_cut_and_has_one_handle(io: IoThread) -> None:
    buffer, sender = make(io, {"writer.batch-size": "4000"}, automatic=False)
    batch = pa.record_batch({"number": range(1_000), "writer": [0] * 1_000, "text": ["x"] * 1_000})
    handle = buffer.write_batch(conforming(buffer, batch))
    wait_until(lambda: len(sender.written) == 1_000, "all rows are sent")
    assert len(sender.waiting) >= 4
    assert not handle.is_done
    sender.acknowledge_soon()
    wait(handle)
    assert [number for _, number in sender.written] == list(range(1_000))
    wait(buffer.write_batch(conforming(buffer, batch.slice(0, 0))))  # no rows: nothing to wait for


def test_helpers_encode_at_once_and_order_stays(io: IoThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluss.client.write.row_buffer.MIN_HELPED_BYTES", 1)
    buffer, sender = make(io, {"writer.batch-size": "100000"})
    batch = pa.record_batch({"number": range(20_000), "writer": [0] * 20_000})
    for start in range(4):
        buffer.append((1, start, "x"))
        buffer.write_batch(conforming(buffer, batch))
    flush(buffer)
    assert sender.written == [row for start in range(4) for row in ((1, start), *((0, n) for n in range(20_000)))]
    assert sender.memory.used_bytes == 0


def test_an_error_is_told_by_the_handle_or_flush_or_the_next_append(io: IoThread) -> None:
    buffer, sender = make(io)
    sender.error = FlussError("no partition", ErrorCode.PARTITION_NOT_EXISTS)
    with pytest.raises(FlussError, match="no partition") as caught:
        wait(buffer.append((0, 0, "x")))
    assert caught.value.error_code == ErrorCode.PARTITION_NOT_EXISTS
    wait_until(lambda: buffer.idle, "nothing is left to do")
    buffer.append((0, 1, "x"))  # told already
    with pytest.raises(FlussError, match="no partition"):
        flush(buffer)
    wait_until(lambda: buffer.idle, "nothing is left to do")
    handle = buffer.append((0, 2, "x"))
    wait_until(lambda: handle.is_done and buffer.idle, "the row has failed")
    with pytest.raises(FlussError, match="an earlier write failed: no partition"):
        buffer.append((0, 3, "x"))
    sender.error = None
    wait(buffer.append((0, 4, "x")))
    flush(buffer)
    assert (0, 3) not in sender.written
    assert "no partition" in repr(handle)


def test_a_flush_reports_all_failures_before_it(io: IoThread) -> None:
    """Otherwise the end of the connection would raise errors of a call that raised already."""
    buffer, sender = make(io, automatic=False)
    sender.error = FlussError("no partition")
    for number in range(3):
        buffer.write_batch(conforming(buffer, pa.record_batch({"number": [number], "writer": [0]})))
    wait_until(lambda: len(sender.waiting) == 3, "the batches are sent")
    sender.acknowledge_soon()
    wait_until(lambda: len(sender.unreported) == 3, "all have failed")
    with pytest.raises(FlussError, match="no partition"):
        flush(buffer)
    assert all(chunk.reported for chunk in sender.unreported)


def test_appends_wait_for_room(io: IoThread) -> None:
    buffer, sender = make(io, {"writer.buffer.memory-size": "5000", "writer.batch-size": "2000"}, automatic=False)
    done = threading.Event()

    def produce() -> None:
        for number in range(5_000):
            buffer.append((0, number, "some text"))
        done.set()

    thread = threading.Thread(target=produce)
    thread.start()
    most = 0
    while not done.is_set():
        wait_until(lambda: sender.waiting or done.is_set(), "a chunk or the end")
        most = max(most, sender.memory.used_bytes)
        sender.acknowledge_soon()
    thread.join()
    sender.automatic = True
    sender.acknowledge_soon()
    flush(buffer)
    assert most < 5_000 + 2 * 4_000  # the limit and a batch of either thread
    assert [number for _, number in sender.written] == list(range(5_000))


def test_waiting_for_room_ends(io: IoThread) -> None:
    options = {"writer.buffer.memory-size": "2000", "writer.batch-size": "1000", "writer.buffer.wait-timeout-ms": "50"}
    buffer, sender = make(io, options, automatic=False)
    accepted = 0
    message = ""
    while not message:
        try:
            buffer.append((0, accepted, "some text"))
            accepted += 1
        except FlussError as error:
            message = error.message
    assert "writer.buffer.memory-size is 2000" in message

    async def ready() -> None:
        waiting = asyncio.create_task(buffer.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        sender.acknowledge_soon()
        await asyncio.wait_for(waiting, DEADLINE_SECONDS)

    asyncio.run(ready())
    sender.automatic = True
    flush(buffer)
    assert [number for _, number in sender.written] == list(range(accepted))


def test_large_rows_fill_a_chunk_sooner(io: IoThread) -> None:
    buffer, sender = make(io, {"writer.batch-size": "20000", "writer.batch-timeout-ms": "600000"}, automatic=False)
    buffer.append((0, 0, "x"))
    wait_until(lambda: sender.waiting, "a chunk is sent")
    for number in range(1, 8):
        buffer.append((0, number, "y" * 9_000))
    wait_until(lambda: len(sender.waiting) >= 3, "three chunks")
    sender.automatic = True
    sender.acknowledge_soon()
    flush(buffer)


def test_a_closed_buffer_refuses_rows(io: IoThread) -> None:
    buffer, _ = make(io)
    wait(buffer.append((0, 0, "x")))
    buffer.close(FlussError("the writer is closed"))
    for _ in range(2):
        with pytest.raises(FlussError, match="the writer is closed"):
            buffer.append((0, 1, "x"))
    with pytest.raises(FlussError, match="the writer is closed"):
        buffer.write_batch(pa.record_batch({"number": [1]}))


def test_an_unused_result_is_pointed_out(io: IoThread) -> None:
    buffer, _ = make(io)
    with pytest.warns(RuntimeWarning, match=r"wait\(\) was dropped"):
        buffer.append((0, 0, "x")).wait()
    silent, _ = make(io, automatic=False)
    with pytest.raises(FlussError, match="not acknowledged") as caught:
        silent.append((0, 0, "x")).wait().result(0.01)
    assert caught.value.error_code == ErrorCode.REQUEST_TIME_OUT


def test_slices_are_even_and_small_enough() -> None:
    batch = pa.record_batch({"number": pa.array(range(1_001), pa.int64())})
    slices = _slices(batch, 3_000)
    assert [part.num_rows for part in slices] == [334, 334, 333]
    assert max(part.nbytes for part in slices) <= 3_000
    assert pa.Table.from_batches(slices).column(0).to_pylist() == list(range(1_001))
    assert _slices(batch, batch.nbytes) == [batch]
    by_rows = _slices(batch, batch.nbytes, batch.num_rows // 3)
    assert max(part.num_rows for part in by_rows) <= batch.num_rows // 3
    assert sum(part.num_rows for part in by_rows) == batch.num_rows
    assert [part.num_rows for part in _slices(batch.slice(0, 2), 1)] == [1, 1]
    assert _slices(batch.slice(0, 0), 1) == []
