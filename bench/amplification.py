"""The cost of one small request for other clients: for every API key, the stall of the server and its memory.

Each request of `bench.nasty_requests` goes to each server process that serves its key, while another connection sends
API_VERSIONS all the time: its longest wait is the stall. Memory is the peak own memory of the process during the
request, less what it had before, divided by the bytes of the request. A key is shown with its worst request. All
requests are sent a second time by a user without permissions. A request that misses the goal is sent `TRIES` times, and
the median counts: on a busy machine any request may be slow once.

At the end, `bench.amplification_frames` shows the effect of unfinished frames on the appends of others.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa

import fluss
from bench.amplification_frames import FRAMES, Appends, time_appends, unfinished_frames
from bench.amplification_rows import row_requests
from bench.figures import Figure, Run, machine_text, settings_of
from bench.nasty_requests import NastyRequest, nasty_requests, smallest
from fluss.errors import FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import APIS, ApiKey
from fluss.protocol.frames import TYPE_SUCCESS, read_error
from tools.servers.logins import TWO_LISTENERS, jaas_config
from tools.servers.permission_requests import REQUESTS, TABLE, victims_acl
from tools.servers.server_process import ServerProcess
from tools.servers.wire_client import WireClient

GOAL_MS = 250
REQUEST_MEGABYTES = 4
DEFINITION_PART = 8  # requests refused for their size are also tried with a size that is accepted
ROWS = 20_000
PERMISSIONS = 500
BUCKETS = 4
TRIES = 5
ANSWER_SECONDS = 20.0  # after them the connection is closed, which ends the work
PROBE_SECONDS = 120.0
STRANGER = "stranger"
PASSWORD = "stranger-secret"
WITH_PERMISSIONS = {
    **TWO_LISTENERS,
    "authorizer.enabled": "true",
    "security.sasl.plain.jaas.config": jaas_config({STRANGER: PASSWORD}),
}
PROBE_PAUSE_SECONDS = 0.001
OF_KEY_TABLES = frozenset(
    {
        ApiKey.PUT_KV,
        ApiKey.LOOKUP,
        ApiKey.PREFIX_LOOKUP,
        ApiKey.SCAN_KV,
        ApiKey.SCAN_KV_RANGE,
        ApiKey.SPLIT_KV,
        ApiKey.LIMIT_SCAN,
        ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE,
        ApiKey.LIST_KV_SNAPSHOTS,
        ApiKey.GET_LATEST_KV_SNAPSHOTS,
    }
)
KEY_TABLE = "keyed"
MEBIBYTE = 1024 * 1024


class Outcome(NamedTuple):
    """The effect of one request."""

    role: str
    key: ApiKey
    title: str
    is_stranger: bool
    milliseconds: float
    bytes_per_byte: float
    answer: str


class FramesOutcome(NamedTuple):
    """The effect of unfinished frames on the appends of others."""

    alone: Appends
    beside: Appends
    memory_mebibytes: float
    sent_mebibytes: float


class Probe:
    """Another client of the same process, which sends tiny requests repeatedly."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._client = WireClient(*address, timeout_seconds=PROBE_SECONDS)
        self._longest = 0.0
        self._asked_at: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        while not self._ended.wait(PROBE_PAUSE_SECONDS):
            began = time.perf_counter()
            self._client.api_versions()
            self._longest = max(self._longest, time.perf_counter() - began)

    def restart(self) -> None:
        """Forget earlier waits."""
        self._longest = 0.0

    def longest_ms(self) -> float:
        """The longest wait for an answer since `restart`."""
        time.sleep(20 * PROBE_PAUSE_SECONDS)
        return self._longest * 1000

    def close(self) -> None:
        """End."""
        self._ended.set()
        self._thread.join()
        self._client.close()


class Target:
    """One process of the server."""

    def __init__(
        self, role: str, process: psutil.Process, address: tuple[str, int], strangers: tuple[str, int]
    ) -> None:
        self.role = role
        self.address = address
        self._process = process
        self._strangers = strangers
        self._probe = Probe(address)
        with WireClient(*address) as client:
            self.keys = [ApiKey(version.api_key) for version in client.api_versions().api_versions]

    def try_request(self, key: ApiKey, nasty: NastyRequest, *, is_stranger: bool) -> Outcome:
        """Send one request and measure its effect; repeat it if the stall is too long."""
        outcomes = [self._try_once(key, nasty, is_stranger=is_stranger)]
        while outcomes[0].milliseconds > GOAL_MS and len(outcomes) < TRIES:
            outcomes.append(self._try_once(key, nasty, is_stranger=is_stranger))
        by_stillness = sorted(outcomes, key=lambda each: each.milliseconds)
        most = max(each.bytes_per_byte for each in outcomes)
        return by_stillness[len(outcomes) // 2]._replace(bytes_per_byte=most)

    def _try_once(self, key: ApiKey, nasty: NastyRequest, *, is_stranger: bool) -> Outcome:
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")  # resets the peak
        before = self._kilobytes("VmRSS")
        address = self._strangers if is_stranger else self.address
        with WireClient(*address, timeout_seconds=ANSWER_SECONDS) as client:
            if is_stranger:
                client.authenticate(STRANGER, PASSWORD)
            self._probe.restart()
            answer = _answer(client, key, nasty.body)
        stillness = self._probe.longest_ms()
        if not self._process.is_running():
            raise SystemExit(f"bench: {self.role} died of {key.name}, {nasty.title}: {answer}")
        grown = max(0, self._kilobytes("VmHWM") - before) * 1024
        return Outcome(self.role, key, nasty.title, is_stranger, stillness, grown / len(nasty.body), answer)

    def append_beside_frames(self, table_id: int, seconds: float, frame_bytes: int) -> FramesOutcome:
        """Time appends alone, then beside unfinished frames."""
        alone = time_appends(self.address, table_id, seconds)
        before = self._kilobytes("VmRSS")
        with unfinished_frames(self.address, frame_bytes=frame_bytes) as frames:
            beside = time_appends(self.address, table_id, seconds)
            grown = self._kilobytes("VmRSS") - before
        return FramesOutcome(alone, beside, grown / 1024, frames.sent_bytes / MEBIBYTE)

    def close(self) -> None:
        """End the probe."""
        self._probe.close()

    def _kilobytes(self, field: str) -> int:
        found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{self._process.pid}/status").read_text())
        assert found is not None
        return int(found[1])


def _answer(client: WireClient, key: ApiKey, body: bytes) -> str:
    try:
        client.send(key, body, APIS[key].max_version)
        _, kind, answer = client.receive_frame()
    except FlussError as error:
        return f"error {error.error_code}"
    except OSError as error:
        return type(error).__name__
    return f"{len(answer)} bytes" if kind == TYPE_SUCCESS else f"error {read_error(answer).error_code}"


def fill(server: ServerProcess) -> dict[str, int]:
    """Create a log table and a primary-key table with rows; return their ids."""
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("text", pa.string())])
    address = server.addresses["FLUSS"]
    with fluss.connect(address) as db:
        db.create_table(TABLE, schema, bucket_count=BUCKETS)
        db.create_table(KEY_TABLE, fluss.Schema(schema, primary_keys=["id"]), bucket_count=BUCKETS)
        rows = pa.table({"id": pa.array(range(ROWS), pa.int32()), "text": ["x" * 20] * ROWS}, schema)
        db.append(TABLE, rows)
        db.upsert(KEY_TABLE, rows)
    with WireClient.connect(address) as client:
        acls = [victims_acl(f"database-{number}") for number in range(PERMISSIONS)]
        client.call(ApiKey.CREATE_ACLS, pb.CreateAclsRequest(acl=acls))
        found = client.metadata(("fluss", TABLE), ("fluss", KEY_TABLE)).table_metadata
        return {item.table_path.table_name: item.table_id for item in found}


def requests_of(key: ApiKey, ids: dict[str, int], size: int) -> Iterator[NastyRequest]:
    """All requests that are tried with a key."""
    table = KEY_TABLE if key in OF_KEY_TABLES else TABLE
    table_path = pb.PbTablePath(database_name="fluss", table_name=table)
    known = {"table_id": ids[table], "bucket_id": 0, "table_path": table_path, "table_name": table}
    known |= {"database_name": "fluss", "follower_server_id": -1, "max_fetch_bytes": 1 << 20}
    build = REQUESTS.get(key)
    base = build("fluss", ids[table]) if build is not None else smallest(APIS[key].request.DESCRIPTOR, known)
    for part in (1, DEFINITION_PART):
        yield from nasty_requests(base, size // part, known)
        yield from row_requests(key, ids[table], size // part)


def targets(server: ServerProcess) -> Iterator[Target]:
    """The coordinator and the tablet, one after another."""
    tablets = {}
    for listener, address in server.addresses.items():
        with WireClient.connect(address) as client:
            if listener != "FLUSS":
                client.authenticate(STRANGER, PASSWORD)
            (node,) = client.call(ApiKey.GET_METADATA, pb.MetadataRequest()).tablet_servers
            tablets[listener] = f"{node.host}:{node.port}"
    for role, addresses in (("coordinator", server.addresses), ("tablet-0", tablets)):
        process = server.process_of(role)
        assert process is not None
        inside, outside = (_host_and_port(addresses[listener]) for listener in ("FLUSS", "CLIENT"))
        target = Target(role, process, inside, outside)
        try:
            yield target
        finally:
            target.close()


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def measure(target: Target, ids: dict[str, int], options: argparse.Namespace) -> Iterator[Outcome]:
    """Send every request of every key of a process, by a user with all permissions and by one with none."""
    size = int(options.megabytes * 1_000_000)
    for key in target.keys:
        if options.keys and key.name not in options.keys:
            continue
        for nasty in islice(requests_of(key, ids, size), options.requests):
            for is_stranger in (False, True):
                outcome = target.try_request(key, nasty, is_stranger=is_stranger)
                if options.verbose:
                    shown = (f"{part:.1f}" if isinstance(part, float) else part for part in outcome)
                    print(*shown, sep=" | ", flush=True)
                yield outcome


def main(arguments: list[str]) -> Run:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench --amplification", description=__doc__)
    parser.add_argument("--megabytes", type=float, default=REQUEST_MEGABYTES, help="size of the requests")
    parser.add_argument("--keys", nargs="*", default=[], help="names of API keys; by default all")
    parser.add_argument("--requests", type=int, help="limit of requests for each key; by default all")
    parser.add_argument("--verbose", action="store_true", help="print every request, not only the worst of a key")
    parser.add_argument("--frame-megabytes", type=float, default=99.0, help="MiB of each unfinished frame; 0: none")
    parser.add_argument("--frame-seconds", type=float, default=10.0, help="how long others append beside them")
    parser.add_argument("--directory", type=Path, help="where the server keeps its data (default: a temporary one)")
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="fluss-bench-", dir=options.directory))
    try:
        with ServerProcess(directory / "data", bind=None, tablets=1, config=WITH_PERMISSIONS) as server:
            ids = fill(server)
            outcomes: list[Outcome] = []
            frames = None
            for target in targets(server):
                outcomes += measure(target, ids, options)
                if target.role != "coordinator" and options.frame_megabytes:
                    frame_bytes = int(options.frame_megabytes * MEBIBYTE)
                    frames = target.append_beside_frames(ids[TABLE], options.frame_seconds, frame_bytes)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"{machine_text()}; requests of {options.megabytes:g} MB, goal {GOAL_MS} ms\n")
    print("\n".join(table_of(outcomes)))
    figures = figures_of(outcomes)
    if frames is not None:
        print("\n" + text_of(frames))
        figures.append(Figure("frames, append", "longest append beside frames", frames.beside.longest_ms, "ms"))
    return Run("amplification", settings_of(options), figures)


def worst(outcomes: list[Outcome]) -> list[Outcome]:
    """The request with the longest stall for every key, process and user, with the highest memory of any."""
    found: dict[tuple[str, ApiKey, bool], Outcome] = {}
    for outcome in outcomes:
        place = outcome.role, outcome.key, outcome.is_stranger
        before = found.get(place, outcome)
        longest = max(before, outcome, key=lambda each: each.milliseconds)
        found[place] = longest._replace(bytes_per_byte=max(before.bytes_per_byte, outcome.bytes_per_byte))
    return list(found.values())


def table_of(outcomes: list[Outcome]) -> list[str]:
    """The lines of the table: one per key, of the process where it is worse."""
    lines = [
        "| key | requests | stall in ms | without permission | bytes of memory per byte | worst request |",
        "|---|---|---|---|---|---|",
    ]
    by_key: dict[ApiKey, list[Outcome]] = {}
    for outcome in worst(outcomes):
        by_key.setdefault(outcome.key, []).append(outcome)
    for key in sorted(by_key):
        known, strangers = (
            max((each for each in by_key[key] if each.is_stranger is is_stranger), key=lambda each: each.milliseconds)
            for is_stranger in (False, True)
        )
        tried = sum(outcome.key == key for outcome in outcomes)
        memory = max(each.bytes_per_byte for each in by_key[key])
        title = max(known, strangers, key=lambda each: each.milliseconds).title
        lines.append(f"| {key.name} | {tried} | {_judged(known)} | {_judged(strangers)} | {memory:.1f} | {title} |")
    return lines


def _judged(outcome: Outcome) -> str:
    return f"{outcome.milliseconds:.0f}" + ("" if outcome.milliseconds <= GOAL_MS else " (missed)")


def text_of(frames: FramesOutcome) -> str:
    """A sentence on the effect of the frames."""
    alone, beside = frames.alone, frames.beside
    return (
        f"{FRAMES} unfinished frames: {beside.number} appends beside them took {beside.median_ms:.1f} ms, the longest "
        f"{beside.longest_ms:.0f} ms (alone {alone.number}, {alone.median_ms:.1f} ms, {alone.longest_ms:.0f} ms); "
        f"{frames.sent_mebibytes:.0f} MiB were sent, the tablet had {frames.memory_mebibytes:.0f} MiB more"
    )


def figures_of(outcomes: list[Outcome]) -> list[Figure]:
    """The stall and memory of every key."""
    figures = []
    for outcome in worst(outcomes):
        row = f"{outcome.role}, {outcome.key.name}" + (", without permission" if outcome.is_stranger else "")
        figures.append(Figure(f"{row}, still", f"{row}: {outcome.title}", outcome.milliseconds, "ms"))
        figures.append(Figure(f"{row}, memory", f"{row}: memory", outcome.bytes_per_byte, "bytes per byte"))
    return figures
