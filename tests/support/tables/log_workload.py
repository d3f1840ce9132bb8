"""Idempotent writers and checking readers on raw sockets, which outlive every crash of the server.

A row is (writer number, counter). A writer owns one writer id and writes ascending counters to every bucket, several
batches in flight; after a lost connection it sends what was not acknowledged again, in order, with the same sequence
numbers. A reader follows one bucket from offset 0 and keeps what it saw. After any number of crashes:

- every acknowledged counter is in the log exactly once, in ascending order per writer and bucket;
- what a reader has seen is what the log holds at that offset, so nothing that was readable ever went away.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque

import pyarrow as pa

from fluss.codec.arrow.compression import Compression
from fluss.codec.batches.arrow_batch import decode_arrow_batch, encode_arrow_batch
from fluss.codec.batches.log_batch import check_crc, iter_batches
from fluss.errors import FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tools.servers.wire_client import WireClient
from tools.waiting import patience

SCHEMA = pa.schema([("writer", pa.int64()), ("counter", pa.int64()), ("padding", pa.string())])
MAX_IN_FLIGHT = 5
ROWS_PER_BATCH = 20
RETRY_PAUSE_SECONDS = 0.02
CONNECTION_TIMEOUT_SECONDS = patience(60.0)
_RETRIABLE = frozenset({1, 3, 10, 12, 14, 21, 25, 26, 44})


def table_json(buckets: int, **properties: str) -> bytes:
    """A descriptor for `SCHEMA`, uncompressed so that crashes hit as many bytes as possible."""
    columns = [("writer", "BIGINT"), ("counter", "BIGINT"), ("padding", "STRING")]
    return json.dumps(
        {
            "version": 1,
            "schema": {
                "version": 1,
                "columns": [
                    {"name": name, "data_type": {"type": kind}, "id": index}
                    for index, (name, kind) in enumerate(columns)
                ],
                "highest_field_id": len(columns) - 1,
            },
            "partition_key": [],
            "bucket_key": [],
            "bucket_count": buckets,
            "properties": {"table.log.arrow.compression.type": "NONE", **properties},
            "custom_properties": {},
        }
    ).encode()


def create_table(address: str, name: str, buckets: int, **properties: str) -> int:
    """Create a table in database `fluss` and return its id."""
    with WireClient.connect(address) as client:
        request = pb.CreateTableRequest(table_json=table_json(buckets, **properties), ignore_if_exists=False)
        request.table_path.database_name, request.table_path.table_name = "fluss", name
        client.call(ApiKey.CREATE_TABLE, request)
        return client.metadata(("fluss", name)).table_metadata[0].table_id


def leaders(address: str, name: str) -> dict[int, tuple[str, int]]:
    """Bucket id -> address of its leader."""
    with WireClient.connect(address, CONNECTION_TIMEOUT_SECONDS) as client:
        answer = client.metadata(("fluss", name))
    nodes = {node.node_id: (node.host, node.port) for node in answer.tablet_servers}
    return {bucket.bucket_id: nodes[bucket.leader_id] for bucket in answer.table_metadata[0].bucket_metadata}


def encode_rows(writer: int, counters: range, writer_id: int, sequence: int) -> bytes:
    """One batch as a client sends it."""
    columns = [[writer] * len(counters), list(counters), ["x" * (counter % 97) for counter in counters]]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
    return encode_arrow_batch(batch, 1, Compression.parse("NONE"), writer_id=writer_id, batch_sequence=sequence)


class Survivor(threading.Thread):
    """Runs `session` repeatedly until `is_done`; lost connections and retriable errors only cost a pause."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def session(self) -> None:
        """One connection; returns or raises when it is over."""
        raise AssertionError("a subclass says what a session is")

    def is_done(self) -> bool:
        """Whether the thread may end."""
        return self.stopping.is_set()

    def run(self) -> None:
        try:
            while not self.is_done():
                try:
                    self.session()
                except (OSError, FlussError) as error:
                    if isinstance(error, FlussError) and error.error_code not in _RETRIABLE:
                        raise
                    time.sleep(RETRY_PAUSE_SECONDS)
        except BaseException as error:
            self.error = error  # raised in the test's thread by `finish`

    def finish(self, deadline_seconds: float = 60.0) -> None:
        """Stop, wait for the end, raise what went wrong."""
        self.stopping.set()
        self.join(patience(deadline_seconds))
        if self.error is not None:
            raise self.error
        assert not self.is_alive(), f"{self.name} did not end within {patience(deadline_seconds):.0f} s"


class Writer(Survivor):
    """Writes to one bucket until told to stop; survives everything but a wrong answer."""

    def __init__(self, address: str, table: str, table_id: int, bucket: int, number: int, acks: int = -1) -> None:
        super().__init__(f"writer-{number}-{bucket}")
        self.address, self.table, self.table_id, self.bucket, self.number = address, table, table_id, bucket, number
        self.acks = acks
        self.acknowledged = 0
        self.sent_counter = 0
        self._pending: deque[tuple[int, bytes, int]] = deque()
        self._next_sequence = 0
        self._writer_id = -1

    def is_done(self) -> bool:
        return self.stopping.is_set() and not self._pending

    def session(self) -> None:
        """One connection: first everything unacknowledged again, then new batches."""
        host, port = leaders(self.address, self.table)[self.bucket]
        with WireClient(host, port, CONNECTION_TIMEOUT_SECONDS) as client:
            if self._writer_id < 0:
                request = pb.InitWriterRequest()
                request.table_path.add(database_name="fluss", table_name=self.table)
                self._writer_id = client.call(ApiKey.INIT_WRITER, request).writer_id
            in_flight = deque(self._send(client, batch) for _, batch, _ in self._pending)
            while in_flight or not self.stopping.is_set():
                while len(in_flight) < MAX_IN_FLIGHT and not self.stopping.is_set():
                    in_flight.append(self._send(client, self._new_batch()))
                self._take_answer(client.receive(in_flight.popleft()))

    def _new_batch(self) -> bytes:
        counters = range(self.sent_counter, self.sent_counter + ROWS_PER_BATCH)
        self.sent_counter = counters.stop
        records = encode_rows(self.number, counters, self._writer_id, self._next_sequence)
        self._pending.append((self._next_sequence, records, counters.stop))
        self._next_sequence += 1
        return records

    def _send(self, client: WireClient, records: bytes) -> int:
        request = pb.ProduceLogRequest(acks=self.acks, table_id=self.table_id, timeout_ms=30_000)
        request.buckets_req.add(bucket_id=self.bucket, records=records)
        return client.send(ApiKey.PRODUCE_LOG, request)

    def _take_answer(self, answer: pb.ProduceLogResponse) -> None:
        (bucket,) = answer.buckets_resp
        if bucket.HasField("error_code"):
            raise FlussError(bucket.error_message, bucket.error_code)
        self.acknowledged = self._pending.popleft()[2]


Row = tuple[int, int, int]


def read_bucket(client: WireClient, table_id: int, bucket: int, offset: int, wait_ms: int | None) -> list[Row]:
    """(offset, writer, counter) of the rows from `offset` on in one fetch."""
    answer = client.fetch(table_id, bucket, offset, max_wait_ms=wait_ms, min_bytes=None if wait_ms is None else 1)
    if answer.HasField("error_code"):
        raise FlussError(answer.error_message, answer.error_code)
    rows: list[Row] = []
    for position, header in iter_batches(answer.records):
        assert check_crc(answer.records, position, header), f"bad checksum at offset {header.base_offset}"
        batch, _ = decode_arrow_batch(answer.records, SCHEMA, position)
        assert batch is not None
        for index, (writer, counter) in enumerate(
            zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        ):
            if header.base_offset + index >= offset:
                rows.append((header.base_offset + index, writer, counter))
    return rows


class Reader(Survivor):
    """Follows one bucket from the start with long polls and keeps every row."""

    def __init__(self, address: str, table: str, table_id: int, bucket: int) -> None:
        super().__init__(f"reader-{bucket}")
        self.address, self.table, self.table_id, self.bucket = address, table, table_id, bucket
        self.rows: list[Row] = []

    def session(self) -> None:
        host, port = leaders(self.address, self.table)[self.bucket]
        with WireClient(host, port, CONNECTION_TIMEOUT_SECONDS) as client:
            while not self.stopping.is_set():
                self.rows += read_bucket(client, self.table_id, self.bucket, len(self.rows), 200)


def read_all(address: str, table: str, table_id: int, bucket: int) -> list[Row]:
    """Everything that is readable in a bucket now."""
    host, port = leaders(address, table)[bucket]
    rows: list[Row] = []
    with WireClient(host, port, CONNECTION_TIMEOUT_SECONDS) as client:
        while True:
            more = read_bucket(client, table_id, bucket, len(rows), None)
            if not more:
                return rows
            rows += more


def check_bucket(rows: list[Row], writers: list[Writer], reader: Reader | None = None) -> None:
    """The two promises at the top of this module, for one bucket."""
    assert [row[0] for row in rows] == list(range(len(rows))), "offsets have holes or are out of order"
    for writer in writers:
        counters = [counter for _, number, counter in rows if number == writer.number]
        assert counters == list(range(len(counters))), f"{writer.name}: lost, doubled or reordered rows"
        assert writer.acknowledged <= len(counters) <= writer.sent_counter, (
            f"{writer.name}: {writer.acknowledged} acknowledged, {len(counters)} in the log"
        )
    if reader is not None:
        assert reader.rows == rows[: len(reader.rows)], "a reader saw rows that the log no longer holds"
