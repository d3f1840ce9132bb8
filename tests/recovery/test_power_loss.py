"""Power failures at random moments: nothing acknowledged is lost, nothing unreadable remains."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fluss.codec.batches.log_batch import read_header
from fluss.codec.batches.log_scan import is_filler
from fluss.errors import FlussError
from fluss.server.storage.log import log_writer
from fluss.server.storage.log.append import Append
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.storage.log.committer import FlushMode
from fluss.server.storage.log.options import LogOptions
from fluss.server.storage.log.synced_mark import MARK_NAME, decode_mark, encode_mark
from tests.support.runner.lanes import rounds, seed
from tests.support.storage.bucket_logs import LogBench, batch_of, read_all
from tests.support.storage.faulty_files import FaultyFiles, NoSyncFiles, RebootedFiles

ROUNDS = rounds(gate=250, all_lanes=250, share_of_soak=4.0)
WRITER = 7


class BucketModel:
    """The batches that a bucket was given and those that it acknowledged."""

    def __init__(self) -> None:
        self.accepted: list[tuple[int, bytes]] = []
        self.acknowledged = 0
        self.sequence = 0

    def note(self, append: Append, batch: bytes) -> None:
        self.accepted.append((append.base_offset, batch))
        index = len(self.accepted)
        append.add_durable(lambda error: self._answer(index, error))

    def _answer(self, index: int, error: FlussError | None) -> None:
        if error is None:
            self.acknowledged = max(self.acknowledged, index)


def _payload(rng: random.Random) -> bytes:
    size = rng.choice((0, 10, 100, 3000, 9000))
    return bytes(size) if rng.random() < 0.2 else rng.randbytes(size)


def _write_until_power_fails(
    bench: LogBench, files: FaultyFiles, logs: list[BucketLog], rng: random.Random
) -> list[BucketModel]:
    models = [BucketModel() for _ in logs]
    while not files.power_is_off:
        pick = rng.randrange(len(logs))
        log, model = logs[pick], models[pick]
        action = rng.random()
        try:
            if action < 0.05:
                log.roll()
            elif action < 0.1:
                log.checkpoint()
            elif action < 0.3:
                bench.committer.drain()
            else:
                for _ in range(rng.randint(1, 4)):
                    batch = batch_of(
                        rng.randint(1, 5), payload=_payload(rng), writer_id=WRITER, sequence=model.sequence
                    )
                    model.note(bench.append(log, batch), batch)
                    model.sequence += 1
        except FlussError:
            break
    bench.settle()
    return models


def _copy_without_holes(directory: Path) -> None:
    """Copy like `cp`, `tar` and `rsync`, and as network file systems show it: unwritten ranges are zeros."""
    for path in [path for path in directory.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)


def _as_if_in_place(directory: Path) -> None:
    """Adapt the marks of the last sync to the new directory, since they only count fully in their own."""
    for path in directory.rglob(MARK_NAME):
        mark = decode_mark(path.read_bytes())
        if mark is not None:
            path.write_bytes(encode_mark(mark._replace(directory_inode=path.parent.stat().st_ino)))


def _check(log: BucketLog, model: BucketModel) -> int:
    """Check that the log is a prefix of the accepted batches with all acknowledged ones; returns its length."""
    stored = [(header, content) for header, content in read_all(log) if not is_filler(header)]
    assert model.acknowledged <= len(stored) <= len(model.accepted)
    for (header, content), (base_offset, batch) in zip(stored, model.accepted, strict=False):
        assert header.base_offset == base_offset
        assert content[21:] == batch[21:]
    return len(stored)


def _check_writer(bench: LogBench, log: BucketLog, model: BucketModel, count: int) -> None:
    """Check that repetitions of the last five batches are recognised, and that the next batch is accepted."""
    for base_offset, batch in model.accepted[max(0, count - 5) : count]:
        answer = bench.append_and_wait(log, batch)
        assert answer.duplicate
        assert answer.base_offset == base_offset
    following = batch_of(2, writer_id=WRITER, sequence=count)
    assert not bench.append_and_wait(log, following).duplicate
    assert read_header(read_all(log)[-1][1]).batch_sequence == count


@pytest.mark.parametrize("block", range(5))
def test_nothing_acknowledged_is_lost(tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if block % 2:
        monkeypatch.setattr(log_writer, "MARK_INTERVAL_SECONDS", 0.0)
    for round_number in range(ROUNDS // 5):
        rng = random.Random(f"{seed()} {block} {round_number}")
        before, after = tmp_path / f"before-{round_number}", tmp_path / f"after-{round_number}"
        before.mkdir()
        options = LogOptions(
            segment_bytes=rng.choice((120, 5000, 30_000, 10_000_000)),
            index_interval_bytes=rng.choice((1, 500, 4096)),
            checkpoint_bytes=rng.choice((2000, 50_000)),
        )
        files = FaultyFiles(before)
        bench = LogBench(before, files, options=options)
        logs = [bench.open(f"log-{number}") for number in range(rng.randint(1, 3))]
        files.power_off_after = rng.randint(1, 150)
        models = _write_until_power_fails(bench, files, logs, rng)
        bench.close()
        files.after_power_loss(after, rng)
        _as_if_in_place(after)
        if round_number % 2:
            _copy_without_holes(after)

        reopened = LogBench(after, NoSyncFiles(), options=options)
        for number, model in enumerate(models):
            log = reopened.open(f"log-{number}")
            assert log.recovery_report.damages == 0
            count = _check(log, model)
            _check_writer(reopened, log, model, count)
            log.close()
            again = reopened.open(f"log-{number}")
            assert len(read_all(again)) == count + 1
        reopened.close()


@pytest.mark.parametrize("flush", ["interval", "os"])
def test_without_sync_the_log_is_still_a_prefix(tmp_path: Path, flush: FlushMode) -> None:
    """The weaker modes may lose the newest rows in a power failure, but leave no damage and reuse no offset."""
    for round_number in range(30):
        rng = random.Random(f"{seed()} {round_number}")
        before, after = tmp_path / f"before-{round_number}", tmp_path / f"after-{round_number}"
        before.mkdir()
        options = LogOptions(segment_bytes=20_000, checkpoint_bytes=15_000)
        files = FaultyFiles(before)
        bench = LogBench(before, files, flush, options)
        log = bench.open()
        files.power_off_after = rng.randint(1, 80)
        (model,) = _write_until_power_fails(bench, files, [log], rng)
        bench.close()
        files.after_power_loss(after, rng)
        _as_if_in_place(after)
        if round_number % 2:
            _copy_without_holes(after)
        shown = log.high_watermark
        model.acknowledged = 0
        reopened = LogBench(after, RebootedFiles(), options=options)
        recovered = reopened.open()
        assert recovered.recovery_report.damages == 0
        _check(recovered, model)
        assert recovered.log_end_offset >= shown, "offsets that were shown would be given again"
        reopened.close()


def test_rows_that_recovery_shows_survive_the_next_power_loss(tmp_path: Path) -> None:
    """A killed process leaves whole batches only in the page cache; readers see them after the restart."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    bench = LogBench(first, NoSyncFiles(), "os")
    log = bench.open()
    for _ in range(5):
        bench.append_and_wait(log, batch_of(3))
    files = FaultyFiles(first)
    files._durable_content = dict.fromkeys(files._durable_content, b"")
    reader = LogBench(first, files)
    assert reader.open().high_watermark == 15
    for number in range(20):
        files.after_power_loss(second / str(number), random.Random(f"{seed()} {number}"))
        assert len(read_all(LogBench(second / str(number), NoSyncFiles()).open())) == 5
    bench.close()
    reader.close()
