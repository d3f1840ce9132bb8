"""A bucket log against a plain list: random appends, repetitions, rolls, removals, full disks, restarts."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.log.options import LogOptions
from tests.support.runner.lanes import examples
from tests.support.storage.bucket_logs import LogBench, batch_of
from tests.support.storage.faulty_files import FaultyFiles

WRITERS = 3


class BucketLogModel(RuleBasedStateMachine):
    """`stored` holds (base offset, rows, payload, timestamp) of every committed batch."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="bucket-log-model-"))
        self.files = FaultyFiles(self.directory)
        self.stored: list[tuple[int, int, bytes, int]] = []
        self.history: dict[int, list[tuple[bytes, int]]] = {writer: [] for writer in range(WRITERS)}
        self.clock = 1000
        self.start = 0

    @initialize(
        segment_bytes=st.sampled_from((120, 400, 3000)),
        interval=st.sampled_from((1, 100, 4096)),
        checkpoint_bytes=st.sampled_from((100, 1000, 10**6)),
    )
    def open(self, segment_bytes: int, interval: int, checkpoint_bytes: int) -> None:
        options = LogOptions(
            segment_bytes=segment_bytes, index_interval_bytes=interval, checkpoint_bytes=checkpoint_bytes
        )
        self.bench = LogBench(self.directory, self.files, options=options)
        self.log = self.bench.open()

    @property
    def end(self) -> int:
        return self.stored[-1][0] + self.stored[-1][1] if self.stored else 0

    @rule(
        writer=st.integers(-1, WRITERS - 1),
        sizes=st.lists(st.integers(0, 300), min_size=1, max_size=4),
        rows=st.integers(1, 4),
        later=st.integers(-5, 5),
    )
    def append(self, writer: int, sizes: list[int], rows: int, later: int) -> None:
        """Several appends in flight at once."""
        self.clock += later
        appends = []
        for size in sizes:
            payload = bytes([len(self.stored) % 256]) * size
            sequence = len(self.history[writer]) if writer >= 0 else -1
            batch = batch_of(rows, payload=payload, writer_id=writer, sequence=sequence)
            append = self.bench.append(self.log, batch, self.clock)
            assert append.base_offset == self.end
            newest = self.stored[-1][3] if self.stored else 0
            self.stored.append((self.end, rows, payload, max(self.clock, newest)))
            if writer >= 0:
                self.history[writer].append((batch, append.base_offset))
            appends.append(append)
        for append in appends:
            self.bench.wait(append)

    @rule(writer=st.integers(0, WRITERS - 1), age=st.integers(0, 7))
    def repeat(self, writer: int, age: int) -> None:
        history = self.history[writer]
        if age >= len(history):
            return
        batch, base_offset = history[-1 - age]
        if age >= 5:
            with pytest.raises(FlussError) as caught:
                self.bench.append(self.log, batch, self.clock)
            assert caught.value.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION
            return
        answer = self.bench.append_and_wait(self.log, batch, self.clock)
        assert answer.duplicate
        assert answer.base_offset == base_offset

    @rule(free=st.integers(0, 40), payload=st.integers(60, 500))
    def fill_the_disk(self, free: int, payload: int) -> None:
        self.bench.settle()
        self.files.free_space_bytes = free
        with pytest.raises(FlussError) as caught:
            self.bench.append_and_wait(self.log, batch_of(2, payload=bytes(payload)), self.clock)
        assert caught.value.error_code == ErrorCode.DISK_WRITE_LOCKED
        self.bench.settle()
        self.files.free_space_bytes = None

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @precondition(lambda self: self.stored)
    @rule(share=st.floats(0, 1))
    def remove(self, share: float) -> None:
        self.bench.settle()
        self.log.delete_segments_up_to(int(self.end * share))
        assert self.log.local_start_offset <= max(int(self.end * share), self.start)
        self.start = self.log.local_start_offset

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        """Close the log, or drop it without closing, as a killed process does."""
        if clean:
            self.log.close()
        else:
            self.bench.settle()
        self.log = self.bench.open()

    @rule(share=st.floats(0, 1))
    def read_somewhere(self, share: float) -> None:
        offset = int(self.end * share)
        if not self.start <= offset < self.end:
            return
        read = self.log.read(offset, 1)
        expected = max(entry for entry in self.stored if entry[0] <= offset)
        assert read.first_batch_offset == expected[0]
        assert bytes(read.view[48:]) == expected[2]

    @rule(timestamp=st.integers(950, 1100))
    def look_for_a_time(self, timestamp: int) -> None:
        later = [entry[0] for entry in self.stored if entry[0] >= self.start and entry[3] >= timestamp]
        assert self.log.offset_for_timestamp(timestamp) == (later[0] if later else None)

    @invariant()
    def same_as_the_list(self) -> None:
        if not hasattr(self, "log"):
            return
        self.bench.settle()
        assert self.log.high_watermark == self.log.log_end_offset == self.end
        assert self.log.local_start_offset == self.start
        position, found = self.start, []
        while position < self.end:
            for view, at, header in self.log.read_batches(position):
                payload = bytes(view[at + 48 : at + header.size])
                found.append((header.base_offset, header.record_count, payload, header.commit_timestamp))
                position = header.next_offset
        assert found == [entry for entry in self.stored if entry[0] >= self.start]

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.close()
        shutil.rmtree(self.directory)


BucketLogModel.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)
TestBucketLogModel = BucketLogModel.TestCase
