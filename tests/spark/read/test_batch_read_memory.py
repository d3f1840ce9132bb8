"""Tasks that read primary-key tables hold little of a bucket, however large it is. The limits are small here."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss.client.state import bucket_scan, key_fold
from fluss.client.state.bucket_scan import MAX_ANSWERS_AHEAD, BucketScan
from fluss.client.state.key_fold import SHARES, KeyFold
from tests.support.servers.targets import running_target
from tests.support.spark.local_reads import Place, new_place
from tools.waiting import wait_until

SCHEMA = fluss.Schema(pa.schema([("id", pa.int64()), ("text", pa.string())]), ["id"])
KEYS = 5_000
WRITES = 20


@pytest.fixture
def place() -> Iterator[Place]:
    """Limits are those of the client, which is the same for all servers."""
    with new_place(running_target("embedded")) as place:
        yield place


@pytest.fixture
def table(place: Place) -> str:
    """Every key is written twice, some hundred rows at a time."""
    path = place.create("keys", SCHEMA, bucket_count=1)
    for number in range(WRITES):
        ids = [(number * KEYS // 10 + row) % KEYS for row in range(KEYS // 10)]
        place.db.upsert(path, pa.table({"id": ids, "text": [f"{number} of {key} {'x' * 50}" for key in ids]}))
    return path


EXPECTED = {key: f"{key * 10 // KEYS + 10} of {key} {'x' * 50}" for key in range(KEYS)}


def test_a_scan_prefetches_only_some_answers(place: Place, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, take = BucketScan._decode, BucketScan._next
    answers, ahead, farthest = 0, 0, 0

    async def counted_decode(scan: BucketScan, records: memoryview) -> Any:
        nonlocal answers, ahead, farthest
        answers, ahead = answers + 1, ahead + 1
        farthest = max(farthest, ahead)
        return await decode(scan, records)

    async def counted_take(scan: BucketScan) -> Any:
        nonlocal ahead
        batch = await take(scan)
        ahead -= batch is not None
        return batch

    monkeypatch.setattr(bucket_scan, "BATCH_BYTES", 4096)
    monkeypatch.setattr(BucketScan, "_decode", counted_decode)
    monkeypatch.setattr(BucketScan, "_next", counted_take)
    reading = place.read(table)
    assert reading.kinds == ["StateSplit"]
    rows: dict[int, str] = {}
    for batch in reading.batches():
        if not rows:
            wait_until(lambda: ahead > MAX_ANSWERS_AHEAD, "answers that wait while the reader pauses")
        rows.update(zip(*map(pa.Array.to_pylist, batch.columns), strict=True))
    assert rows == EXPECTED
    assert answers > 50
    assert farthest <= MAX_ANSWERS_AHEAD + 2, "plus one each in the reader and in the requesting task"


def test_changes_that_are_folded_go_to_files(
    place: Place, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window of changes, and the state on servers without scans: memory holds the limit and one share."""
    limit, step = 50_000, 1_000
    add, merge_share = KeyFold.add_batch, KeyFold._merged_share
    held: list[int] = []
    shares: list[int] = []

    def watched_add(fold: KeyFold, batch: Any, deleted: Any) -> None:
        add(fold, batch, deleted)
        held.append(fold._merge.size_bytes + sum(part.nbytes for part in fold._unspilled))
        assert len(list(tmp_path.iterdir())) == (1 if fold.is_spilled else 0)

    def watched_merge(fold: KeyFold, path: str) -> Any:
        merged = merge_share(fold, path)
        assert merged is not None
        shares.append(merged.num_rows)
        return merged

    monkeypatch.setattr(key_fold, "MAX_MEMORY_BYTES", limit)
    monkeypatch.setattr(key_fold, "SPILL_ROWS", step)
    monkeypatch.setattr(KeyFold, "add_batch", watched_add)
    monkeypatch.setattr(KeyFold, "_merged_share", watched_merge)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    reading = place.read(table, **{"scan.incremental.start.timestamp": 1})
    assert reading.kinds == ["WindowSplit"]
    rows = reading.table()
    assert dict(zip(*map(pa.ChunkedArray.to_pylist, rows.columns), strict=True)) == EXPECTED
    total = sum(len(text) + 16 for text in EXPECTED.values()) * 2
    assert max(held) < total / 4, "the limit, and the rows of one write"
    assert len(shares) == SHARES
    assert sum(shares) == KEYS
    assert max(shares) < KEYS / 8
    assert list(tmp_path.iterdir()) == []
