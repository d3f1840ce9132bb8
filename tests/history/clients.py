"""Clients that write and read all kinds of tables while their server is killed, and note what they saw.

Half of the clients are patient: their calls go on over a restart. The others give up soon, so that the outcome of many
writes is unknown, and go on with the next ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import fluss
from tests.history.records import History
from tools.waiting import patience, wait_until

KEYS = 4
# Histories of a key stay short enough to be judged: after so many rounds there are new keys.
ROUNDS_PER_KEY = 3
LIST_READS = 0.05
JOIN_SECONDS = patience(120.0)
_ID = pa.field("id", pa.int64(), nullable=False)
TABLES: dict[str, tuple[pa.Schema, dict[str, str]]] = {
    "register": (pa.schema([_ID, ("value", pa.string())]), {}),
    "partial": (pa.schema([_ID, ("a", pa.string()), ("b", pa.string())]), {}),
    "first": (pa.schema([_ID, ("value", pa.string())]), {"table.merge-engine": "first_row"}),
    "versioned": (
        pa.schema([_ID, ("version", pa.int64())]),
        {"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "version"},
    ),
    "list": (pa.schema([("id", pa.int64()), ("value", pa.string())]), {}),
}


@dataclass
class Recorded:
    """What all clients of a run saw."""

    histories: dict[str, History] = field(default_factory=lambda: {name: History() for name in TABLES})
    places: list[tuple[int, Any]] = field(default_factory=list)
    tails: list[list[tuple[int, Any]]] = field(default_factory=list)


def create_tables(db: fluss.Database) -> None:
    """All of them, empty."""
    for name, (schema, properties) in TABLES.items():
        keys = None if name == "list" else ["id"]
        db.create_table(f"fluss.{name}", schema, primary_keys=keys, bucket_count=1, properties=properties)


class Client(threading.Thread):
    """One of them. `round` is set by the test; `done` counts its calls."""

    def __init__(self, number: int, address: str, recorded: Recorded, seed: int) -> None:
        super().__init__(name=f"history-client-{number}", daemon=True)
        self.round = 0
        self.done = 0
        self.stopping = threading.Event()
        self.defects: list[BaseException] = []
        self._number = number
        self._recorded = recorded
        self._rng = random.Random(f"{seed} {number}")
        config = {"bootstrap.servers": address}
        if number % 2:
            config |= {"writer.retries": "1", "request.timeout": "500ms"}
        self._config = fluss.Config(config)
        self._next_value = 0

    def run(self) -> None:
        try:
            with self._connected() as db:
                while not self.stopping.is_set():
                    self._step(db)
                    self.done += 1
        except BaseException as error:  # the test raises it
            self.defects.append(error)

    def _connected(self) -> fluss.Database:
        """Impatient clients may have to ask several times where the machine is busy."""

        def connected() -> fluss.Database | None:
            with contextlib.suppress(fluss.FlussError):
                return fluss.connect(self._config)
            return None

        db = wait_until(connected, "there is a connection")
        assert db is not None
        return db

    def _step(self, db: fluss.Database) -> None:
        name = self._rng.choice(list(TABLES))
        key = self.round // ROUNDS_PER_KEY * KEYS + self._rng.randrange(KEYS)
        is_write = self._rng.random() < (1 - LIST_READS if name == "list" else 0.5)
        with contextlib.suppress(fluss.FlussError):  # noted as unknown, or nothing was seen
            if is_write:
                self._write(db, name, key)
            else:
                self.read(db, name, key)

    def _write(self, db: fluss.Database, name: str, key: int) -> None:
        self._next_value += 1
        value: Any = f"{self._number}-{self._next_value}"
        column = "version" if name == "versioned" else "value"
        noted: Any = key
        write: Callable[..., None] = db.upsert
        options: dict[str, Any] = {}
        if name == "versioned":
            value = self._rng.randrange(1000) * 10**9 + self._next_value * 100 + self._number
        elif name == "partial":
            column = self._rng.choice(("a", "b"))
            noted, options = (key, column), {"columns": ["id", column]}
        elif name == "list":
            write = db.append
        history = self._recorded.histories[name]
        start = history.now()
        try:
            write(f"fluss.{name}", [{"id": key, column: value}], **options)
        except fluss.FlussError:
            history.wrote(noted, value, start, is_known=False)
            raise
        history.wrote(noted, value, start)

    def read(self, db: fluss.Database, name: str, key: int) -> None:
        """One key, as a lookup or a scan gives it now."""
        history = self._recorded.histories[name]
        start = history.now()
        if name == "list":
            rows = db.to_arrow("fluss.list")
            found = [row["value"] for row in rows.to_pylist() if row["id"] == key]
            history.read(key, tuple(found), start)
            return
        row = db.lookup(f"fluss.{name}", key)
        if name == "partial":
            for column in ("a", "b"):
                history.read((key, column), None if row is None else row[column], start)
        else:
            history.read(key, None if row is None else row["version" if name == "versioned" else "value"], start)


class Tail(threading.Thread):
    """Polls the log from its start, over all restarts, until it has come to an offset."""

    def __init__(self, address: str, recorded: Recorded) -> None:
        super().__init__(name="history-tail", daemon=True)
        self.until: int | None = None
        self.defects: list[BaseException] = []
        self.seen: list[tuple[int, Any]] = []
        self._address = address
        recorded.tails.append(self.seen)

    def run(self) -> None:
        try:
            with fluss.connect(self._address) as db:
                table = asyncio.run(db.connection.get_table(fluss.TablePath("fluss", "list")))
                scanner = asyncio.run(table.new_scan().create_log_scanner())
                scanner.subscribe(0, 0)
                while self.until is None or scanner.get_subscribed_buckets()[0][1] < self.until:
                    with contextlib.suppress(fluss.FlussError):
                        self.seen += [(record.offset, record.row["value"]) for record in scanner.poll(100)]
        except BaseException as error:  # the test raises it
            self.defects.append(error)
