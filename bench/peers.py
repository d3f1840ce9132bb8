"""Our server and client beside Kafka and Redis, on workloads of both, from Python on one machine.

All servers run at the same time and take turns in every step; the first round is discarded. Every comparison of writes
is made twice, with both sides syncing to disk before they acknowledge, and with both leaving that to the system. A peer
that cannot be fetched is left out, and the table states why.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.client_report import percentile
from bench.figures import Figure, Run, add_file_options, machine_text, number, settings_of, write_files
from bench.peer_servers import KAFKA, KAFKA_VERSION, REDIS, KafkaServer, PeerServer, RedisServer, redis_version
from bench.run import WARM_MEGABYTES, rate, warm_page_cache
from bench.servers import OUR_CLIENT, LoadProcess, OurServer
from tools.peers.cache import PeerMissingError

SYNCED, UNSYNCED = "synced", "unsynced"
FLUSH = {SYNCED: "always", UNSYNCED: "os"}
FSYNC = {SYNCED: "always", UNSYNCED: "no"}
WORDS = {SYNCED: "both sync first", UNSYNCED: "neither syncs"}
LONE_SECONDS = 10.0

Note = Callable[[str, str, float], None]
"""Called with the name of the side, the row, and the figure."""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    name: str
    title: str
    unit: str
    peer: str

    @property
    def is_rate(self) -> bool:
        return self.unit.endswith("/s")


def _both(name: str, title: str, unit: str, peer: str) -> list[Row]:
    return [Row(f"{name}_{kind}", f"{title}, {words}", unit, peer) for kind, words in WORDS.items()]


ROWS = (
    *_both("append_rows", "append rows of 5 columns one by one", "k rows/s", KAFKA),
    *_both("append_ready", "append 1 KB rows that are encoded already", "k rows/s", KAFKA),
    *_both("acknowledged", "one row acknowledged", "ms", KAFKA),
    *_both("polled", "one row until a polling reader has it", "ms", KAFKA),
    *_both("upsert_rows", "upsert rows of 5 columns, new keys", "k rows/s", REDIS),
    *_both("upsert_alone", "one upsert acknowledged", "ms", REDIS),
    Row("lookup", "one lookup", "ms", REDIS),
    Row("lookup_many", "lookup of 50,000 keys at once", "k keys/s", REDIS),
)


class Rounds:
    """The steps; each is done by both sides, in turns."""

    def __init__(self, options: argparse.Namespace, ours: Mapping[str, LoadProcess], note: Note) -> None:
        self._options = options
        self._ours = ours
        self._note = note

    def beside_kafka(self, kafka: LoadProcess, kind: str) -> None:
        """Compare appends and lone rows."""
        ours, rows, ready = self._ours[kind], self._options.rows, self._options.ready_rows
        lone, synced = self._options.lone_rows, kind == SYNCED
        shape = {"buckets": 1}
        self._rates(
            f"append_rows_{kind}", ours.call("append_rows", table="rows", rows=rows, **shape),
            KAFKA, kafka.call("append_rows", table=f"rows-{kind}", rows=rows, synced=synced),
        )  # fmt: skip
        ours.call("drop", table="rows")
        kafka.call("drop", table=f"rows-{kind}")
        self._rates(
            f"append_ready_{kind}", ours.call("append_arrow", table="wide", rows=ready, compression="ZSTD", **shape),
            KAFKA, kafka.call("append_bytes", table=f"wide-{kind}", rows=ready, synced=synced),
        )  # fmt: skip
        ours.call("drop", table="wide")
        kafka.call("drop", table=f"wide-{kind}")
        mine = ours.call("lone_rows", table="lone", times=lone, seconds=LONE_SECONDS)
        theirs = kafka.call("lone_rows", table=f"lone-{kind}", times=lone, synced=synced)
        for what in ("acknowledged", "polled"):
            self._times(f"{what}_{kind}", mine[what], KAFKA, theirs[what])
        ours.call("drop", table="lone")
        kafka.call("drop", table=f"lone-{kind}")

    def beside_redis(self, redis: LoadProcess, kind: str) -> None:
        """Compare upserts, one and many; and lookups, which do not sync, only once."""
        ours, rows = self._ours[kind], self._options.rows
        self._rates(
            f"upsert_rows_{kind}", ours.call("upsert_rows", table="keys", rows=rows, buckets=1),
            REDIS, redis.call("upsert_rows", table="keys", rows=rows),
        )  # fmt: skip
        sizes: dict[str, Any] = {"table": "keys", "times": self._options.lone_rows}
        mine = ours.call("upsert_alone", seconds=LONE_SECONDS, **sizes)
        self._times(f"upsert_alone_{kind}", mine["times"], REDIS, redis.call("lone_rows", **sizes)["acknowledged"])
        if kind == SYNCED:
            sizes = {"table": "keys", "keys": rows, "times": self._options.lookups}
            mine = ours.call("lookup_alone", seconds=LONE_SECONDS, **sizes)
            self._times("lookup", mine["times"], REDIS, redis.call("lookup_alone", **sizes)["times"])
            sizes = {"table": "keys", "keys": rows, "seconds": self._options.seconds}
            self._rates("lookup_many", ours.call("lookup_many", **sizes), REDIS, redis.call("lookup_many", **sizes))
        ours.call("drop", table="keys")
        redis.call("drop", table="keys")

    def _rates(self, row: str, ours: dict[str, Any], peer: str, theirs: dict[str, Any]) -> None:
        self._note("fluss", row, rate(ours) / 1000)
        self._note(peer, row, rate(theirs) / 1000)

    def _times(self, row: str, ours: list[float], peer: str, theirs: list[float]) -> None:
        self._note("fluss", row, percentile(ours, 0.5) * 1000)
        self._note(peer, row, percentile(theirs, 0.5) * 1000)


def measure(options: argparse.Namespace, directory: Path, note: Note) -> list[str]:
    """Run all rounds; return the peers that were left out, and why."""
    with contextlib.ExitStack() as stack:
        peers: dict[tuple[str, str], PeerServer] = {}
        missing: list[str] = []
        for name, factory in _factories(options.peers, directory):
            try:
                made = factory()
                for server in set(made.values()):
                    stack.callback(server.stop)
                    server.start()
                peers |= {(name, kind): server for kind, server in made.items()}
            except PeerMissingError as error:
                missing.append(f"{name} was left out: {error}.")
        if not peers:
            raise SystemExit(f"bench: no peer is available. {' '.join(missing)}")
        ours: dict[str, LoadProcess] = {}
        for kind, flush in FLUSH.items():
            own = OurServer(directory, 1, flush, OUR_CLIENT)
            stack.callback(own.stop)
            own.start()
            assert own.driver is not None
            ours[kind] = own.driver
        warm_page_cache(directory, options.warm_megabytes)
        for turn in range(options.rounds + 1):
            rounds = Rounds(options, ours, note if turn else lambda *_: None)
            for (name, kind), peer in peers.items():
                assert peer.driver is not None
                (rounds.beside_kafka if name == KAFKA else rounds.beside_redis)(peer.driver, kind)
            print(f"  round {turn} of {options.rounds}", file=sys.stderr, flush=True)
        return missing


def _factories(wanted: list[str], directory: Path) -> list[tuple[str, Callable[[], Mapping[str, PeerServer]]]]:
    def kafka() -> Mapping[str, PeerServer]:
        return dict.fromkeys(FSYNC, KafkaServer(directory))  # topics decide whether it syncs

    def redis() -> Mapping[str, PeerServer]:
        return {kind: RedisServer(directory, fsync) for kind, fsync in FSYNC.items()}

    makers: dict[str, Callable[[], Mapping[str, PeerServer]]] = {KAFKA: kafka, REDIS: redis}
    return [(name, make) for name, make in makers.items() if name in wanted]


def figures_of(noted: Mapping[tuple[str, str], list[float]]) -> list[Figure]:
    """Medians over the rounds."""
    figures = []
    for row in ROWS:
        if ("fluss", row.name) in noted:
            ours, theirs = (statistics.median(noted[who, row.name]) for who in ("fluss", row.peer))
            ratio = ours / theirs if row.is_rate else theirs / ours
            figures.append(Figure(row.name, row.title, ours, row.unit, {row.peer: theirs}, ratio))
    return figures


def markdown(figures: list[Figure], title: str) -> str:
    """The table; `times` is how many times better ours is."""
    lines = [title.strip(), "", "| | unit | fluss | peer | | times |", "|---|---|---|---|---|---|"]
    for figure in figures:
        ((peer, value),) = figure.peers.items()
        cells = [figure.title, figure.unit, number(figure.value), peer, number(value), number(figure.ratio)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench --peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; one more is discarded")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of five columns")
    parser.add_argument("--ready-rows", type=int, default=100_000, help="rows of 1 KB")
    parser.add_argument("--lone-rows", type=int, default=200, help="single rows per round and kind")
    parser.add_argument("--lookups", type=int, default=1_000, help="lookups alone, per round")
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of lookups of many keys, per round")
    parser.add_argument("--only", dest="peers", nargs="+", choices=(KAFKA, REDIS), default=[KAFKA, REDIS])
    parser.add_argument("--warm-megabytes", type=int, default=WARM_MEGABYTES, help="written and deleted first")
    add_file_options(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> Run:
    """Measure and print."""
    options = parse(arguments)
    directory = Path(tempfile.mkdtemp(prefix="fluss-bench-", dir=options.directory))
    noted: dict[tuple[str, str], list[float]] = {}

    def note(who: str, row: str, figure: float) -> None:
        noted.setdefault((who, row), []).append(figure)

    began = time.monotonic()
    try:
        missing = measure(options, directory, note)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    figures = figures_of(noted)
    versions = {KAFKA: KAFKA_VERSION} | ({REDIS: redis_version()} if (REDIS, "lookup") in noted else {})
    title = f"{machine_text()}; {', '.join(f'{name} {version}' for name, version in versions.items())}; "
    title += (
        f"medians of {options.rounds} rounds in turns, {time.monotonic() - began:.0f} s in all. {' '.join(missing)}"
    )
    text = markdown(figures, title)
    print(text)
    write_files(options, text, title, {f"{who}: {row}": values for (who, row), values in noted.items()})
    return Run("peers", {**settings_of(options), "versions": [f"{k} {v}" for k, v in versions.items()]}, figures)
