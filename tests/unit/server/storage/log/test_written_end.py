"""The end of a log, determined by another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluss.server.storage.log.options import LogOptions
from fluss.server.storage.log.written_end import written_end
from tests.support.storage.bucket_logs import LogBench, batch_of
from tests.support.storage.faulty_files import NoSyncFiles


def test_it_follows_every_append_and_every_restart(tmp_path: Path) -> None:
    directory = str(tmp_path / "log-0")
    assert written_end(directory) == 0, "the bucket was never opened"
    options = LogOptions(segment_bytes=400)
    for start in range(3):
        bench = LogBench(tmp_path, NoSyncFiles(), options=options)
        log = bench.open()
        assert written_end(directory) == log.log_end_offset == start * 20
        for number in range(10):
            bench.append_and_wait(log, batch_of(2, payload=b"x" * 50))
            assert written_end(directory) == start * 20 + 2 * (number + 1)
        assert len(log.segments) > 1
        bench.settle()
        bench.close()


def test_a_torn_end_is_ignored(tmp_path: Path) -> None:
    bench = LogBench(tmp_path, NoSyncFiles())
    log = bench.open()
    bench.append_and_wait(log, batch_of(2))
    bench.close()
    path = Path(log.segments[-1].log_path)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:30])
    assert written_end(str(path.parent)) == 2
    path.write_bytes(whole + bytes(100))
    assert written_end(str(path.parent)) == 2


@pytest.mark.parametrize("place", [0, 8, 30, 60])
def test_damage_does_not_end_the_log(tmp_path: Path, place: int) -> None:
    """A lake may have the rows behind the damage, and may have read the damaged ones in time or skipped them."""
    bench = LogBench(tmp_path, NoSyncFiles())
    log = bench.open()
    for _ in range(3):
        bench.append_and_wait(log, batch_of(2, payload=b"x" * 50))
    bench.close()
    path = Path(log.segments[-1].log_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 3 + place] ^= 0x55
    path.write_bytes(content)
    assert written_end(str(path.parent)) == LogBench(tmp_path, NoSyncFiles()).open().log_end_offset == 6
