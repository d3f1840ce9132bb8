"""The memory that server and client need while gigabytes pass through them.

Our client appends Arrow batches to our server, then scans all of them. A thread samples the processes ten times a
second. The figure is memory that is theirs alone (`RssAnon`, summed over the processes of the server): mapped segment
files are pages of the page cache, which the kernel can reclaim at any time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

from bench.figures import Figure, Run, settings_of
from bench.run import rate
from bench.servers import OUR_CLIENT, Driver, OurServer

SAMPLE_SECONDS = 0.1
GOAL_MEGABYTES = 500
WIDE_ROW_BYTES = 890  # in Arrow, see `wide_batch` of the driver; the table shows what it really was


def resident_memory(process_ids: Iterable[int]) -> tuple[float, float]:
    """Megabytes of all processes: anonymous, and with mapped files and shared pages. Ended processes count nothing."""
    anonymous = total = 0
    for process_id in process_ids:
        try:
            lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
        except OSError:
            continue
        sizes = {key: value for key, _, value in (line.partition(":") for line in lines)}
        anonymous += int(sizes.get("RssAnon", "0").split()[0])
        total += int(sizes.get("VmRSS", "0").split()[0])
    return anonymous / 1024, total / 1024


class Watch:
    """Samples processes on a separate thread during the `with` block; keeps the highest figures."""

    def __init__(self, process_ids: Callable[[], list[int]]) -> None:
        self.anonymous = self.total = 0.0
        self._process_ids = process_ids
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while True:
            anonymous, total = resident_memory(self._process_ids())
            self.anonymous, self.total = max(self.anonymous, anonymous), max(self.total, total)
            if self._ended.wait(SAMPLE_SECONDS):
                return

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()


def measure(server: OurServer, options: argparse.Namespace) -> list[tuple[str, float, Watch, Watch]]:
    """Append, scan all, scan two columns; return for each its title, rows per second, server and client memory."""
    rows = max(1, int(options.gigabytes * 1e9 / WIDE_ROW_BYTES))
    shape = {"table": "memory", "buckets": options.buckets}
    server.start()
    driver = Driver(server.bootstrap, OUR_CLIENT)
    lines = []
    try:
        with Watch(server.process_ids) as of_server, Watch(lambda: [driver.process_id]) as of_client:
            written = driver.call("append_arrow", rows=rows, compression=options.compression, **shape)
        title = f"append {written['bytes'] / 1e9:.1f} GB ({written['rows'] / 1e6:.1f} M rows)"
        lines.append((title, rate(written), of_server, of_client))
        for title, columns in (("scan all", None), ("scan 2 of 16 columns", ["i1", "s3"])):
            with Watch(server.process_ids) as of_server, Watch(lambda: [driver.process_id]) as of_client:
                seen = driver.call("scan", rows=written["rows"], columns=columns, **shape)
            lines.append((title, rate(seen), of_server, of_client))
    finally:
        driver.close()
    return lines


def main(arguments: list[str]) -> Run:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench --memory", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0, help="GB of Arrow data; the disk needs as much")
    parser.add_argument("--compression", choices=("ZSTD", "NONE"), default="NONE")
    parser.add_argument("--buckets", type=int, default=1)
    parser.add_argument("--tablets", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="where the server keeps its data (default: a temporary one)")
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="fluss-bench-", dir=options.directory))
    server = OurServer(directory, options.tablets, "always", OUR_CLIENT)
    try:
        lines = measure(server, options)
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
    load = os.getloadavg()[0]
    print(f"compression {options.compression}, load {load:.1f}; highest figures in MB, goal {GOAL_MEGABYTES}\n")
    print("| | k rows/s | server, own memory | with mapped files | client, own memory | with mapped files | |")
    print("|---|---|---|---|---|---|---|")
    for title, speed, of_server, of_client in lines:
        reached = max(of_server.anonymous, of_client.anonymous) < GOAL_MEGABYTES
        sizes = [of_server.anonymous, of_server.total, of_client.anonymous, of_client.total]
        cells = " | ".join(f"{size:.0f}" for size in sizes)
        print(f"| {title} | {speed / 1000:.0f} | {cells} | {'reached' if reached else 'missed'} |")
    return Run("memory", settings_of(options), figures_of(lines))


def figures_of(lines: list[tuple[str, float, Watch, Watch]]) -> list[Figure]:
    """The speed and own memory of every line."""
    figures = []
    for title, speed, of_server, of_client in lines:
        row = title.partition(" GB")[0].rstrip("0123456789. ")  # without how much it was
        figures.append(Figure(row, title, speed / 1000, "k rows/s"))
        figures.append(Figure(f"{row}, server", f"{title}, own memory of the server", of_server.anonymous, "MB"))
        figures.append(Figure(f"{row}, client", f"{title}, own memory of the client", of_client.anonymous, "MB"))
    return figures
