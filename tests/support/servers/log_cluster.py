"""A coordinator and tablets on one loop, driven over real sockets: what tests of log tables start with.

Batches have the columns `id INT, name STRING`, uncompressed, so tests can say what a fetch must return byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from fluss.codec.arrow.compression import NO_COMPRESSION
from fluss.codec.batches.arrow_batch import decode_arrow_batch, encode_arrow_batch
from fluss.codec.batches.log_batch import iter_batches
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.config.server_config import ServerConfig
from fluss.server.process.embedded import EmbeddedCluster
from tools.servers.messages import int_column, table_document, text_column
from tools.servers.wire_client import WireClient

ARROW_SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string())])
COLUMNS = (int_column("id"), text_column("name"))


def arrow_rows(ids: Sequence[int], padding: int = 0) -> pa.RecordBatch:
    """Rows with these ids; `padding` makes their names longer."""
    names = [f"row {number}" + "x" * padding for number in ids]
    return pa.RecordBatch.from_arrays([pa.array(ids, pa.int32()), pa.array(names)], schema=ARROW_SCHEMA)


def arrow_batch(ids: Sequence[int], *, padding: int = 0, schema_id: int = 1, **header: Any) -> bytes:
    """A log batch of such rows."""
    return encode_arrow_batch(arrow_rows(ids, padding), schema_id, NO_COMPRESSION, **header)


def ids_of(records: bytes, schema: pa.Schema = ARROW_SCHEMA) -> list[int]:
    """The ids in all whole batches."""
    found: list[int] = []
    for position, _ in iter_batches(records):
        rows, _ = decode_arrow_batch(records, schema, position)
        if rows is not None:
            found += rows.column(0).to_pylist()
    return found


class LogCluster:
    """A running server and one client for each of its roles."""

    def __init__(self, directory: Path, **overrides: Any) -> None:
        self.directory = directory
        self.overrides = overrides
        self.start()

    def start(self) -> None:
        """Start, also again after `stop`."""
        config = ServerConfig.for_tests(self.directory, **self.overrides)
        self.cluster = EmbeddedCluster(config)
        self.coordinator = WireClient.connect(self.cluster.bootstrap_servers)
        nodes = self.coordinator.metadata().tablet_servers
        self.tablets = [WireClient(node.host, node.port) for node in sorted(nodes, key=lambda node: node.node_id)]
        self.tablet = self.tablets[0]

    def stop(self) -> None:
        """Stop the server; the directory stays."""
        for client in (self.coordinator, *self.tablets):
            client.close()
        self.cluster.close()

    def restart(self, **overrides: Any) -> None:
        """Stop and start, with other settings if given."""
        self.stop()
        self.overrides = {**self.overrides, **overrides}
        self.start()

    def another_client(self) -> WireClient:
        """One more connection to the first tablet."""
        host, port = self.tablet.socket.getpeername()[:2]
        return WireClient(host, port)

    def __enter__(self) -> LogCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ---- tables ----

    def create_table(self, name: str, properties: Mapping[str, str] | None = None, **more: Any) -> int:
        """Create a log table with uncompressed batches; returns its id."""
        more.setdefault("columns", COLUMNS)
        more.setdefault("bucket_count", 1)
        document = table_document(properties={"table.log.arrow.compression.type": "NONE", **(properties or {})}, **more)
        request = pb.CreateTableRequest(table_json=document, ignore_if_exists=False)
        request.table_path.CopyFrom(path_of(name))
        self.coordinator.call(ApiKey.CREATE_TABLE, request)
        return self.table_id(name)

    def table_id(self, name: str) -> int:
        """The id of a table."""
        answer = self.coordinator.call(ApiKey.GET_TABLE_INFO, pb.GetTableInfoRequest(table_path=path_of(name)))
        return int(answer.table_id)

    def drop_table(self, name: str) -> None:
        """Drop a table that exists."""
        request = pb.DropTableRequest(ignore_if_not_exists=False)
        request.table_path.CopyFrom(path_of(name))
        self.coordinator.call(ApiKey.DROP_TABLE, request)

    # ---- offsets ----

    def offsets(self, table_id: int, offset_type: int, timestamp: int | None = None, **more: Any) -> Any:
        """LIST_OFFSETS of bucket 0."""
        request = pb.ListOffsetsRequest(
            follower_server_id=-1, offset_type=offset_type, table_id=table_id, startTimestamp=timestamp, **more
        )
        request.bucket_id.append(0)
        return self.tablet.call(ApiKey.LIST_OFFSETS, request).buckets_resp[0]

    def latest(self, table_id: int) -> int:
        """The high watermark of bucket 0."""
        return int(self.offsets(table_id, 1).offset)

    def earliest(self, table_id: int) -> int:
        """The first readable offset of bucket 0."""
        return int(self.offsets(table_id, 0).offset)


def path_of(name: str) -> pb.PbTablePath:
    """The path of a table in the database that always exists."""
    return pb.PbTablePath(database_name="fluss", table_name=name)
