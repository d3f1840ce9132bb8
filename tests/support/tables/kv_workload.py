"""Writers of upserts, deletes and partial updates on raw sockets, which outlive every crash of the server.

What a writer does in its batch number n follows from its number and n alone, so its rows after n batches are known
without any bookkeeping. A writer owns its keys. Each batch also sets the writer's own row to n, so the rows themselves
tell how many batches they contain. After any number of crashes, for every writer:

- the rows are exactly those after m batches, for an m that is at least the number of acknowledged ones;
- the changelog, read from the start, leads to the same rows, and each old row in it is the one that was there;
- a lookup, also one between two crashes, finds the rows after some m batches; no lookup that begins later finds fewer
  batches, or fewer than were acknowledged when it began. So what was ever found was durable.

In a partitioned table rows have the partition as their last column.
"""

from __future__ import annotations

import json
import random
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fluss.codec.arrow.types import to_arrow_schema
from fluss.codec.batches.arrow_batch import decode_arrow_batch
from fluss.codec.batches.kv_batch import encode_kv_batch
from fluss.codec.batches.kv_values import ValueReader
from fluss.codec.batches.log_batch import iter_batches
from fluss.codec.keys.encoding import KeyEncoding, encode_key
from fluss.codec.rows.columns import RowFormat
from fluss.codec.rows.compacted import encode_compacted_row
from fluss.errors import FlussError
from fluss.model.schema import Column, Schema, schema_to_json
from fluss.model.types import BigIntType, StringType
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tests.support.tables.log_workload import CONNECTION_TIMEOUT_SECONDS, MAX_IN_FLIGHT, Survivor, leaders
from tools.servers.wire_client import WireClient

SCHEMA = Schema(
    (
        Column("id", BigIntType(nullable=False), column_id=0),
        Column("number", BigIntType(), column_id=1),
        Column("text", StringType(), column_id=2),
    ),
    ("id",),
)
PARTITION_COLUMN = "region"
PARTITIONED_SCHEMA = Schema(
    (*SCHEMA.columns, Column(PARTITION_COLUMN, StringType(nullable=False), column_id=3)), ("id", PARTITION_COLUMN)
)
KEYS_PER_WRITER = 40
KEY_DISTANCE = 1000
RECORDS_PER_BATCH = 12
PUT_KV_VERSION = 2
PARTIAL_TARGETS = (0, 2)
LOOKUP_PAUSE_SECONDS = 0.02
Rows = dict[int, tuple[Any, ...]]
Operation = tuple[int, int | None, str | None] | int


class Partition(NamedTuple):
    """A partition of the table."""

    name: str
    partition_id: int


def create_table(address: str, name: str, buckets: int, **properties: str) -> int:
    """Create the table in database `fluss` and return its id."""
    with WireClient.connect(address) as client:
        return _create_table(client, name, buckets, SCHEMA, [], properties)


def create_partitioned_table(
    address: str, name: str, buckets: int, partitions: Sequence[str], **properties: str
) -> tuple[int, list[Partition]]:
    """The same with partitions; returns them too."""
    with WireClient.connect(address) as client:
        table_id = _create_table(client, name, buckets, PARTITIONED_SCHEMA, [PARTITION_COLUMN], properties)
        for partition in partitions:
            request = pb.CreatePartitionRequest(ignore_if_not_exists=False)
            request.table_path.database_name, request.table_path.table_name = "fluss", name
            request.partition_spec.partition_key_values.add(key=PARTITION_COLUMN, value=partition)
            client.call(ApiKey.CREATE_PARTITION, request)
        listing = pb.ListPartitionInfosRequest()
        listing.table_path.database_name, listing.table_path.table_name = "fluss", name
        infos = client.call(ApiKey.LIST_PARTITION_INFOS, listing).partitions_info
    ids = {info.partition_spec.partition_key_values[0].value: info.partition_id for info in infos}
    return table_id, [Partition(partition, ids[partition]) for partition in partitions]


def _create_table(
    client: WireClient,
    name: str,
    buckets: int,
    schema: Schema,
    partition_keys: Sequence[str],
    properties: Mapping[str, str],
) -> int:
    document = {
        "version": 1,
        "schema": schema_to_json(schema),
        "partition_key": list(partition_keys),
        "bucket_key": [],
        "bucket_count": buckets,
        "properties": dict(properties),
        "custom_properties": {},
    }
    request = pb.CreateTableRequest(table_json=json.dumps(document).encode(), ignore_if_exists=False)
    request.table_path.database_name, request.table_path.table_name = "fluss", name
    client.call(ApiKey.CREATE_TABLE, request)
    return client.metadata(("fluss", name)).table_metadata[0].table_id


def leader(address: str, table: str, bucket: int, partition: Partition | None) -> tuple[str, int]:
    """The address of the leader of a bucket."""
    if partition is None:
        return leaders(address, table)[bucket]
    with WireClient.connect(address, CONNECTION_TIMEOUT_SECONDS) as client:
        request = pb.MetadataRequest(partitions_id=[partition.partition_id])
        answer = client.call(ApiKey.GET_METADATA, request)
    nodes = {node.node_id: (node.host, node.port) for node in answer.tablet_servers}
    found = {item.bucket_id: nodes[item.leader_id] for item in answer.partition_metadata[0].bucket_metadata}
    return found[bucket]


def key_bytes(key: int) -> bytes:
    """The key of a row."""
    return encode_key([key], [SCHEMA.data_types[0]], KeyEncoding.COMPACTED)


def is_partial(batch: int) -> bool:
    """Whether a batch writes only some of the columns."""
    return batch % 5 == 4


def operations(writer: int, batch: int) -> list[Operation]:
    """What a batch does: rows to put, and keys to delete."""
    rng = random.Random(writer * 1_000_003 + batch)
    base = writer * KEY_DISTANCE
    found: list[Operation] = [(base, batch + 1, str(batch + 1))]
    for _ in range(rng.randrange(RECORDS_PER_BATCH)):
        key = base + 1 + rng.randrange(KEYS_PER_WRITER)
        if rng.random() < 0.3:
            found.append(key)
        else:
            text = None if rng.random() < 0.1 else "x" * rng.randrange(60)
            found.append((key, rng.randrange(1 << 40), text))
    return found


def apply(rows: Rows, writer: int, batch: int) -> None:
    """Do to a model what the server does."""
    for operation in operations(writer, batch):
        if not isinstance(operation, int):
            key, number, text = operation
            if is_partial(batch):
                number = rows[key][1] if key in rows else None
            rows[key] = (key, number, text)
        elif not is_partial(batch):
            rows.pop(operation, None)
        elif operation in rows:
            number = rows[operation][1]
            if number is None:
                del rows[operation]
            else:
                rows[operation] = (operation, number, None)


def rows_after(writer: int, batches: int) -> Rows:
    """The rows of a writer after so many batches."""
    rows: Rows = {}
    for batch in range(batches):
        apply(rows, writer, batch)
    return rows


def encode(writer: int, batch: int, writer_id: int, partition: Partition | None = None) -> bytes:
    """One batch as a client sends it."""
    schema = SCHEMA if partition is None else PARTITIONED_SCHEMA
    more = () if partition is None else (partition.name,)
    keys, rows = list[bytes](), list[bytes | None]()
    for operation in operations(writer, batch):
        if isinstance(operation, int):
            keys.append(key_bytes(operation))
            rows.append(None)
        else:
            keys.append(key_bytes(operation[0]))
            rows.append(encode_compacted_row((*operation, *more), schema.data_types))
    return encode_kv_batch(keys, rows, 1, writer_id=writer_id, batch_sequence=batch)


class KvWriter(Survivor):
    """Writes to one bucket until told to stop; survives everything but a wrong answer."""

    def __init__(
        self, address: str, table: str, table_id: int, bucket: int, number: int, partition: Partition | None = None
    ) -> None:
        super().__init__(f"kv-writer-{number}-{bucket}")
        self.address, self.table, self.table_id, self.bucket, self.number = address, table, table_id, bucket, number
        self.partition = partition
        self.abandoned = threading.Event()
        self.acknowledged = 0
        self.sent = 0
        self._pending: deque[int] = deque()
        self._writer_id = -1

    def is_done(self) -> bool:
        return self.abandoned.is_set() or (self.stopping.is_set() and not self._pending)

    def session(self) -> None:
        """One connection: first everything unacknowledged again, then new batches."""
        host, port = leader(self.address, self.table, self.bucket, self.partition)
        with WireClient(host, port, CONNECTION_TIMEOUT_SECONDS) as client:
            if self._writer_id < 0:
                request = pb.InitWriterRequest()
                request.table_path.add(database_name="fluss", table_name=self.table)
                self._writer_id = client.call(ApiKey.INIT_WRITER, request).writer_id
            in_flight = deque(self._send(client, batch) for batch in self._pending)
            while in_flight or not self.stopping.is_set():
                while len(in_flight) < MAX_IN_FLIGHT and not self.stopping.is_set():
                    self._pending.append(self.sent)
                    self.sent += 1
                    in_flight.append(self._send(client, self._pending[-1]))
                if self.abandoned.is_set():
                    return
                self._take_answer(client.receive(in_flight.popleft()))

    def _send(self, client: WireClient, batch: int) -> int:
        request = pb.PutKvRequest(acks=-1, table_id=self.table_id, timeout_ms=30_000)
        if is_partial(batch):
            request.target_columns.extend(PARTIAL_TARGETS if self.partition is None else (*PARTIAL_TARGETS, 3))
        records = encode(self.number, batch, self._writer_id, self.partition)
        request.buckets_req.add(bucket_id=self.bucket, partition_id=_id(self.partition), records=records)
        return client.send(ApiKey.PUT_KV, request, PUT_KV_VERSION)

    def _take_answer(self, answer: pb.PutKvResponse) -> None:
        (bucket,) = answer.buckets_resp
        if bucket.HasField("error_code"):
            raise FlussError(bucket.error_message, bucket.error_code)
        self._pending.popleft()
        self.acknowledged += 1


def look_up(
    client: WireClient, table_id: int, bucket: int, keys: list[int], partition: Partition | None = None
) -> Rows:
    """The rows that lookups find."""
    request = pb.LookupRequest(table_id=table_id)
    request.buckets_req.add(bucket_id=bucket, partition_id=_id(partition), keys=[key_bytes(key) for key in keys])
    (answer,) = client.call(ApiKey.LOOKUP, request, 1).buckets_resp
    if answer.HasField("error_code"):
        raise FlussError(answer.error_message, answer.error_code)
    schema = SCHEMA if partition is None else PARTITIONED_SCHEMA
    reader = ValueReader({1: schema}, 1, RowFormat.COMPACTED)
    found = [tuple(reader.row(value.values)) for value in answer.values if value.HasField("values")]
    return {row[0]: _without_partition(row, partition) for row in found}


def look_up_writer(client: WireClient, writer: KvWriter) -> tuple[int, Rows]:
    """How many batches of a writer lookups find, and its rows."""
    base = writer.number * KEY_DISTANCE
    keys = list(range(base, base + 1 + KEYS_PER_WRITER))
    rows = look_up(client, writer.table_id, writer.bucket, keys, writer.partition)
    return (int(rows[base][2]) if base in rows else 0), rows


class KvLooker(Survivor):
    """Looks up the rows of a writer while it writes and the server crashes; fails when it finds what it may not."""

    def __init__(self, writer: KvWriter) -> None:
        super().__init__(f"kv-looker-{writer.number}")
        self.writer = writer
        self.lookups = 0
        self.batches = 0  # that the newest lookup found
        self._rows: Rows = {}

    def session(self) -> None:
        writer = self.writer
        host, port = leader(writer.address, writer.table, writer.bucket, writer.partition)
        with WireClient(host, port, CONNECTION_TIMEOUT_SECONDS) as client:
            while not self.stopping.wait(LOOKUP_PAUSE_SECONDS):
                least = max(self.batches, writer.acknowledged)
                batches, rows = look_up_writer(client, writer)
                assert batches >= least, f"{self.name} found {batches} batches, although {least} were durable"
                for batch in range(self.batches, batches):
                    apply(self._rows, writer.number, batch)
                assert rows == self._rows, f"{self.name}: other rows than after {batches} batches"
                self.batches = batches
                self.lookups += 1


def _id(partition: Partition | None) -> int | None:
    return None if partition is None else partition.partition_id


def _without_partition(row: tuple[Any, ...], partition: Partition | None) -> tuple[Any, ...]:
    if partition is None:
        return row
    assert row[-1] == partition.name, f"{row} is in partition {partition.name}"
    return row[:-1]


def read_changelog(client: WireClient, table_id: int, bucket: int, partition: Partition | None = None) -> Rows:
    """The rows that the changelog leads to; asserts that each of its old rows was the one that was there."""
    arrow_schema = to_arrow_schema(SCHEMA if partition is None else PARTITIONED_SCHEMA)
    rows: Rows = {}
    offset = 0
    while True:
        answer = client.fetch(table_id, bucket, offset, partition_id=_id(partition))
        if answer.HasField("error_code"):
            raise FlussError(answer.error_message, answer.error_code)
        before = offset
        for position, header in iter_batches(answer.records):
            assert header.base_offset == offset, "the changelog has a hole"
            offset = header.next_offset
            batch, kinds = decode_arrow_batch(answer.records, arrow_schema, position)
            if batch is None or kinds is None:
                continue
            for kind, *values in zip(kinds, *[column.to_pylist() for column in batch.columns], strict=True):
                row = _without_partition(tuple(values), partition)
                if kind in (2, 4):
                    assert rows.pop(row[0]) == row, f"offset {header.base_offset}: an old row that was not there"
                else:
                    assert row[0] not in rows, f"offset {header.base_offset}: a new row over another one"
                    rows[row[0]] = row
        if offset == before:
            return rows


def check_writer(client: WireClient, writer: KvWriter) -> int:
    """The rows of a writer are those after some number of batches, not fewer than were acknowledged; this number."""
    acknowledged = writer.acknowledged
    batches, rows = look_up_writer(client, writer)
    assert acknowledged <= batches <= writer.sent, f"{writer.name}: {acknowledged} acknowledged, {batches} applied"
    assert rows == rows_after(writer.number, batches), f"{writer.name}: other rows than after {batches} batches"
    return batches


def check_changelog(
    client: WireClient,
    table_id: int,
    bucket: int,
    writers: list[KvWriter],
    applied: Mapping[int, int] | None = None,
) -> None:
    """The changelog of a bucket leads to the rows that lookups find. Nothing is written meanwhile.

    `applied`: batches by writer, where these are not the acknowledged ones.
    """
    rows = read_changelog(client, table_id, bucket, writers[0].partition)
    expected: Rows = {}
    for writer in writers:
        batches = writer.acknowledged if applied is None else applied[writer.number]
        expected |= rows_after(writer.number, batches)
    assert rows == expected
