"""Where a log ends, seen from another process."""

from __future__ import annotations

from pathlib import Path

from fluss.server.storage.log.options import LogOptions
from fluss.server.storage.log.written_end import written_end
from tests.support.bucket_logs import LogBench, batch_of
from tests.support.faulty_files import NoSyncFiles


def test_it_follows_every_append_and_every_restart(tmp_path: Path) -> None:
    directory = str(tmp_path / "log-0")
    assert written_end(directory) == 0, "nobody has opened the bucket yet"
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


def test_a_torn_end_does_not_count(tmp_path: Path) -> None:
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
