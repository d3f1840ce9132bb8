"""Bucket logs alone: the cost of an append and a read without network and protocol.

    python -m bench.storage [--rounds 3] [--directory DIR]

Prints, per case, the best of the rounds. Results depend mostly on the machine (fdatasync above all), so compare runs of
the same hour.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fluss.codec.batches.log_batch import encode_batch
from fluss.codec.buffers import ReadableBuffer
from fluss.errors import FlussError
from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.storage.log.committer import Committer, FlushMode
from fluss.server.storage.log.options import LogOptions


class NoDisk(FileSystem):
    """Discards writes, so that only our own work remains."""

    def pwritev(self, descriptor: int, buffers: Sequence[ReadableBuffer], position: int) -> int:
        return sum(map(len, buffers))

    def fdatasync(self, descriptor: int) -> None:
        """Nothing."""

    def sync_directory(self, path: str) -> None:
        """Nothing."""


class Case(NamedTuple):
    """One line of the table."""

    name: str
    files: FileSystem
    flush: FlushMode
    buckets: int
    batch_bytes: int
    in_flight: int
    appends: int


CASES = (
    Case("own work only, 1 KB", NoDisk(), "os", 1, 1024, 128, 20_000),
    Case("always, 1 KB lone", FileSystem(), "always", 1, 1024, 1, 500),
    Case("always, 1 KB x128", FileSystem(), "always", 1, 1024, 128, 20_000),
    Case("always, 1 KB x128, 4 buckets", FileSystem(), "always", 4, 1024, 128, 10_000),
    Case("always, 1 KB x128, 16 buckets", FileSystem(), "always", 16, 1024, 128, 10_000),
    Case("always, 1 MB x4", FileSystem(), "always", 1, 1 << 20, 4, 300),
    Case("interval, 1 KB x128", FileSystem(), "interval", 1, 1024, 128, 20_000),
    Case("os, 1 MB x4", FileSystem(), "os", 1, 1 << 20, 4, 300),
)


def _release() -> None:
    """The buffers of the benchmark are never reused."""


async def _append(case: Case, directory: Path) -> tuple[float, list[float]]:
    """Append; return the total seconds, and those of each append from submission to acknowledgement."""
    loop = asyncio.get_running_loop()
    committer = Committer(loop.call_soon_threadsafe, case.files, case.flush)
    logs = [BucketLog.open(directory / f"log-{n}", LogOptions(), committer, case.files) for n in range(case.buckets)]
    body = bytes(case.batch_bytes - 48)
    batches = []
    for number in range(case.appends):
        sequence = number // case.buckets
        batch = encode_batch([body], 100, 1, append_only=True, writer_id=1, batch_sequence=sequence)
        batches.append(memoryview(bytearray(batch)))
    done = loop.create_future()
    latencies: list[float] = []
    sent = 0

    def send() -> None:
        nonlocal sent
        number, sent = sent, sent + 1
        start = time.perf_counter()

        def answer(error: FlussError | None) -> None:
            latencies.append(time.perf_counter() - start)
            if error is not None:
                done.set_exception(error)
            elif sent < case.appends:
                send()
            elif len(latencies) == case.appends:
                done.set_result(None)

        logs[number % case.buckets].append(batches[number], 1000, _release).add_durable(answer)

    begin = time.perf_counter()
    for _ in range(min(case.in_flight, case.appends)):
        send()
    await done
    seconds = time.perf_counter() - begin
    for log in logs:
        log.destroy()
    committer.close()
    return seconds, latencies


async def _read(directory: Path) -> None:
    """Find 1 MB ranges and the newest batch, without sending them."""
    files = FileSystem()
    committer = Committer(asyncio.get_running_loop().call_soon_threadsafe, files, "os")
    log = BucketLog.open(directory, LogOptions(), committer, files)
    batch = encode_batch([bytes(10_000)], 1, 1, append_only=True)
    for _ in range(5000):
        log.append(memoryview(bytearray(batch)), 1000, _release)
        if committer.is_full:
            committer.drain()
    committer.drain()
    for name, offsets in (("1 MB range", range(4900)), ("newest batch", range(4999, 5000))):
        begin = time.perf_counter()
        for _ in range(4900 // len(offsets)):
            for offset in offsets:
                log.read(offset, 1 << 20)
        print(f"find {name:25} {(time.perf_counter() - begin) / 4900 * 1e6:8.1f} us")
    committer.close()


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None, help="where to write; default: a temporary directory")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="fluss-bench-storage-", dir=arguments.directory))
    try:
        for case in CASES:
            results = []
            for number in range(arguments.rounds):
                directory = root / f"{case.name}-{number}"
                directory.mkdir()
                results.append(asyncio.run(_append(case, directory)))
                shutil.rmtree(directory)
            seconds, latencies = min(results)
            latencies.sort()
            median, late = (latencies[case.appends * share // 100] * 1e6 for share in (50, 99))
            print(
                f"{case.name:30} {case.appends / seconds:8.0f} appends/s {seconds / case.appends * 1e6:8.1f} us each"
                f" {case.appends * case.batch_bytes / seconds / 1e6:7.0f} MB/s"
                f"  p50 {median:7.0f} us  p99 {late:7.0f} us"
            )
        asyncio.run(_read(root / "reads"))
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
