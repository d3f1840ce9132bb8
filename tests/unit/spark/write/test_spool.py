"""Spooled rows: in memory, in a file, and if neither has room."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fluss.errors import FlussError
from fluss.spark.write import spool as module
from fluss.spark.write.spool import Spool

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def rows(first: int) -> pa.RecordBatch:
    values = list(range(first, first + 100))
    return pa.record_batch([pa.array(values), pa.array([None if n % 7 else f"t{n}" for n in values])], schema=SCHEMA)


@pytest.mark.parametrize("memory_bytes", [10**9, 3_000, 0])
def test_rows_are_returned_unchanged(memory_bytes: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "MAX_MEMORY_BYTES", memory_bytes)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    with Spool(SCHEMA) as spool:
        for number in range(5):
            spool.add(rows(100 * number))
        assert spool.rows == 500
        for _ in range(2):
            assert [batch.equals(rows(100 * number)) for number, batch in enumerate(spool.batches())] == [True] * 5
        assert list(tmp_path.iterdir()) == [], "a file with a name may stay behind"


def test_the_checksum_is_that_of_the_rows() -> None:
    def checksum(*firsts: int) -> int:
        with Spool(SCHEMA) as spool:
            for first in firsts:
                spool.add(rows(first))
            return spool.checksum

    assert checksum(0, 100) == checksum(0, 100)
    assert len({checksum(0, 100), checksum(100, 0), checksum(0), checksum(0, 101)}) == 4


def test_no_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "MAX_MEMORY_BYTES", 0)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "missing"))
    with pytest.raises(FlussError, match=r"cannot be kept in .*missing.*ENOENT.*delivery=at-least-once"):
        Spool(SCHEMA).add(rows(0))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(module, "MIN_FREE_DISK_BYTES", 2**62)
    with Spool(SCHEMA) as spool:
        spool.add(rows(0))
        with pytest.raises(FlussError, match=r"fewer than \d+ bytes are free there"):
            spool.add(rows(100))
    monkeypatch.setattr(module, "MAX_SPOOL_BYTES", 10)
    with pytest.raises(FlussError, match="the limit is 10 bytes"):
        Spool(SCHEMA).add(rows(0))
