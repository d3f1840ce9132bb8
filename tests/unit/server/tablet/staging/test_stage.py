"""Staging: accepted, repeated and refused batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.server.storage.staged_files import StagedHeader, decode_header, encode_header
from tests.support.harness.staged_tablet import Attempt, StagedTablet, run_tablet
from tests.support.servers.log_cluster import arrow_batch
from tests.support.storage.faulty_files import FaultyFiles
from tools.servers.messages import table_document, text_column

KEYED = ({"name": "id", "data_type": {"type": "INTEGER", "nullable": False}}, text_column("name"))


def test_staged_rows_are_seen_after_the_commit_and_not_before(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        first, second = Attempt(1), Attempt(2)
        assert (await tablet.stage(table, second, second.batches([5, 6]))).error_code == 0
        for ids in ([1, 2], [3], [4]):
            assert (await tablet.stage(table, first, first.batches(ids))).error_code == 0
        assert await tablet.rows(table) == []
        await tablet.produce(table, arrow_batch([0]))
        assert await tablet.commit(table, first, second)
        assert await tablet.rows(table) == [0, 1, 2, 3, 4, 5, 6], "attempts in the order of the commit"
        assert tablet.staged_files() == []
        assert tablet.last_batch_id(table) == 0
        assert tablet.service.staging.workers.staged_bytes.total == 0
        log, _ = tablet.service.registry.find(TableBucket(table, None, 0)).opened()
        assert (len(log.writers), log.writers.protected) == (0, set()), "an attempt leaves no writer state behind"

    run_tablet(tmp_path, scenario)


def test_the_header_of_a_file_has_its_documented_bytes() -> None:
    header = StagedHeader(table_id=3, writer_id=7, batch_id=5, transaction="q1")
    data = encode_header(header)
    assert data.hex() == (
        "464c5354" "0100" "0200" "36d3320c" "0300000000000000" "0700000000000000" "0500000000000000" "7131"
    )  # fmt: skip
    assert decode_header(data + b"batches") == (header, 38)
    for cut in range(len(data)):
        assert decode_header(data[:cut]) is None
        assert decode_header(data[:cut] + b"\xff" + data[cut + 1 :]) is None


def test_repeated_and_overlapping_requests_are_recognised_and_gaps_refused(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        attempt = Attempt(9)
        one, two, three = (attempt.batches([number]) for number in range(3))
        assert (await tablet.stage(table, attempt, one)).error_code == 0
        gap = await tablet.stage(table, attempt, three)
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION
        assert "expected 1" in gap.error_message
        for records in (one, one + two, two, two + three, one):
            assert (await tablet.stage(table, attempt, records)).error_code == 0
        assert await tablet.commit(table, attempt)
        assert await tablet.rows(table) == [0, 1, 2]

    run_tablet(tmp_path, scenario)


@pytest.mark.parametrize("tail", [b"", b"\0" * 60, b"noise"], ids=["torn", "zeros", "noise"])
def test_staging_continues_after_a_restart_of_the_tablet(tmp_path: Path, tail: bytes) -> None:
    attempt = Attempt(4)
    one, two, three = (attempt.batches([number]) for number in range(3))
    tables: list[int] = []

    async def before(tablet: StagedTablet) -> None:
        tables.append(tablet.create_table("t"))
        await tablet.stage(tables[0], attempt, one)
        await tablet.stage(tables[0], attempt, two)

    async def after(tablet: StagedTablet) -> None:
        assert (await tablet.stage(tables[0], attempt, two + three)).error_code == 0
        assert await tablet.commit(tables[0], attempt)
        assert await tablet.rows(tables[0]) == [0, 1, 2]

    run_tablet(tmp_path, before)
    (file,) = tmp_path.rglob("*.staged")
    file.write_bytes(file.read_bytes() + (tail or three[:-7]))
    run_tablet(tmp_path, after)


def test_a_file_with_an_incomplete_header_is_started_again(tmp_path: Path) -> None:
    attempt = Attempt(4)
    records = attempt.batches([1], [2])
    tables: list[int] = []

    async def before(tablet: StagedTablet) -> None:
        tables.append(tablet.create_table("t"))
        await tablet.stage(tables[0], attempt, records)

    async def after(tablet: StagedTablet) -> None:
        with pytest.raises(FlussError, match="there is no such file"):
            await tablet.prepare(tables[0], attempt)
        assert (await tablet.stage(tables[0], attempt, records)).error_code == 0
        assert await tablet.commit(tables[0], attempt)
        assert await tablet.rows(tables[0]) == [1, 2]

    run_tablet(tmp_path, before)
    (file,) = tmp_path.rglob("*.staged")
    file.write_bytes(file.read_bytes()[:20])
    run_tablet(tmp_path, after)


def test_rows_of_a_decided_batch_are_not_kept(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        winner, late = Attempt(1, batch_id=5), Attempt(2, batch_id=5)
        await tablet.stage(table, winner, winner.batches([1]))
        assert await tablet.commit(table, winner)
        answer = await tablet.stage(table, late, late.batches([2]))
        assert (answer.error_code, answer.staged_bytes) == (0, 0)
        assert tablet.staged_files() == []
        assert not tablet.decide(table, late, token="another")

    run_tablet(tmp_path, scenario)


def test_invalid_requests_are_refused_with_a_reason(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        tablet.coordinator.create_table("k", table_document(KEYED, primary_key=["id"], bucket_count=1))
        keyed = int(tablet.coordinator.table_info("k").table_id)

        async def code(attempt: Attempt, records: bytes | None = None, target: int = table) -> int:
            records = attempt.batches([1]) if records is None else records
            return int((await tablet.stage(target, attempt, records)).error_code)

        invalid = ErrorCode.INVALID_PRODUCER_ID_EXCEPTION
        assert await code(Attempt(1, transaction="")) == invalid
        assert await code(Attempt(1, transaction="ö" * 257)) == invalid
        assert await code(Attempt(1, batch_id=-1)) == invalid
        assert await code(Attempt(-5)) == ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION
        assert await code(Attempt(1), Attempt(2).batches([1])) == ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION
        assert await code(Attempt(1), arrow_batch([1])) == ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION
        assert await code(Attempt(1), target=keyed) == ErrorCode.INVALID_TABLE_EXCEPTION
        assert await code(Attempt(1), target=99) == ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION
        damaged = bytearray(Attempt(1).batches([1]))
        damaged[-1] ^= 1
        assert await code(Attempt(1), bytes(damaged)) == ErrorCode.CORRUPT_RECORD_EXCEPTION
        assert tablet.staged_files() == []
        assert await code(Attempt(1)) == 0
        assert await code(Attempt(1, batch_id=1)) == invalid, "a writer id is one attempt"

    run_tablet(tmp_path, scenario)


def test_limits_of_staged_bytes_fail_only_the_attempt(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t", bucket_count=3)
        small, large = Attempt(1), Attempt(2)
        assert (await tablet.stage(table, small, small.batches([1]))).error_code == 0
        refused = await tablet.stage(table, large, large.batches(range(100)))
        assert refused.error_code == ErrorCode.RECORD_TOO_LARGE_EXCEPTION
        assert "staged.append.max-bucket-size" in refused.error_message
        again = await tablet.stage(table, large, Attempt(2).batches([1]))
        assert again.error_code == ErrorCode.RECORD_TOO_LARGE_EXCEPTION, "half of an attempt is of no use"
        for bucket, writer_id in ((1, 3), (2, 4)):
            other = Attempt(writer_id)
            answer = await tablet.stage(table, other, other.batches([1] * 60, bucket=bucket), bucket)
        assert answer.error_code == ErrorCode.RECORD_TOO_LARGE_EXCEPTION
        assert "staged.append.max-size" in answer.error_message
        assert await tablet.commit(table, small)
        assert await tablet.rows(table) == [1]

    run_tablet(tmp_path, scenario, staged_append_max_bucket_bytes=1500, staged_append_max_bytes=2000)


def test_a_full_disk_fails_staging_with_nothing_half_done(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)

    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        attempt = Attempt(1)
        assert (await tablet.stage(table, attempt, attempt.batches([1]))).error_code == 0
        size = tablet.staged_files()[0].stat().st_size
        files.free_space_bytes = 8 * 1024 * 1024 + 300
        refused = await tablet.stage(table, attempt, attempt.batches(range(50)))
        assert refused.error_code == ErrorCode.DISK_WRITE_LOCKED
        assert "free some space" in refused.error_message
        assert [file.stat().st_size for file in tablet.staged_files()] == [size]
        files.free_space_bytes = None
        late = await tablet.stage(table, attempt, attempt.batches([9]))
        assert late.error_code == ErrorCode.DISK_WRITE_LOCKED, "the attempt is over"
        with pytest.raises(FlussError) as caught:
            await tablet.prepare(table, attempt)
        assert caught.value.error_code == ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION
        await tablet.abort(table, writer_ids=[1])
        assert tablet.staged_files() == []
        other = Attempt(2)
        await tablet.stage(table, other, other.batches([7]))
        assert await tablet.commit(table, other)
        assert await tablet.rows(table) == [7]

    run_tablet(tmp_path, scenario, files=files)


def test_a_write_that_stops_half_way_is_truncated(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)

    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        attempt = Attempt(1)
        await tablet.stage(table, attempt, attempt.batches([1]))
        before = tablet.staged_files()[0].read_bytes()
        files.failing_writes.add(".staged")
        refused = await tablet.stage(table, attempt, attempt.batches([2]))
        assert refused.error_code == ErrorCode.STORAGE_EXCEPTION
        again = await tablet.stage(table, attempt, Attempt(1).batches([1]))
        assert again.error_code == ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION, "no client repeats this for ever"
        other = Attempt(2)
        assert (await tablet.stage(table, other, other.batches([3]))).error_code == ErrorCode.STORAGE_EXCEPTION
        assert [file.read_bytes() for file in tablet.staged_files()] == [before], "nothing of the other one"
        assert tablet.service.staging.workers.staged_bytes.total == len(before)

    run_tablet(tmp_path, scenario, files=files)


def test_requests_wait_while_the_staging_threads_are_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluss.server.tablet.staging.workers.MAX_QUEUED_BYTES", 1)

    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        attempt = Attempt(1)
        answers = [tablet.begin_stage(table, attempt, attempt.batches([number])) for number in range(20)]
        assert [(await answer).error_code for answer in answers] == [0] * 20
        assert tablet.service.staging.workers.queued_bytes == 0
        assert tablet.releases == 20
        assert await tablet.commit(table, attempt)
        assert await tablet.rows(table) == list(range(20))

    run_tablet(tmp_path, scenario)
