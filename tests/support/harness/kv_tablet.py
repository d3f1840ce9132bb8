"""Primary-key tables on a tablet without sockets: puts of rows, the changelog as rows, the state as rows."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from fluss.codec.batches.kv_batch import encode_kv_batch
from fluss.codec.batches.log_batch import iter_batches
from fluss.codec.keys.encoding import encode_key
from fluss.codec.rows.arrow_values import column_to_values
from fluss.codec.rows.columns import RowFormat
from fluss.codec.rows.compacted import encode_compacted_row
from fluss.codec.rows.indexed import encode_indexed_row
from fluss.model.paths import ChangeType, TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.runtime.handlers import ProduceRequest
from fluss.server.storage.kv.kv_bucket import KvBucket
from fluss.server.storage.kv.store import KvStore
from fluss.server.tablet.buckets.kv_rules import KvRules
from fluss.server.tablet.buckets.local_bucket import LocalBucket
from tests.support.harness.tablet import TabletHarness

Row = Sequence[Any]
_ENCODE = {RowFormat.COMPACTED: encode_compacted_row, RowFormat.INDEXED: encode_indexed_row}

COLUMNS: tuple[dict[str, Any], ...] = (
    {"name": "id", "data_type": {"type": "INTEGER", "nullable": False}},
    {"name": "name", "data_type": {"type": "STRING"}},
    {"name": "score", "data_type": {"type": "BIGINT"}},
)


class Change(NamedTuple):
    """One changelog row."""

    offset: int
    kind: str
    row: tuple[Any, ...]


class KvTable:
    """One primary-key table of a harness."""

    def __init__(self, tablet: TabletHarness, table_id: int) -> None:
        self.tablet = tablet
        self.table_id = table_id
        self._sequences: dict[int, int] = {}

    @classmethod
    def create(cls, tablet: TabletHarness, name: str = "t", **more: Any) -> KvTable:
        """A table with primary key `id`, unless said otherwise."""
        more.setdefault("columns", COLUMNS)
        more.setdefault("primary_key", ["id"])
        return cls(tablet, tablet.create_table(name, **more))

    @property
    def rules(self) -> KvRules:
        """The rules of the table as they are now."""
        registry = self.tablet.service.registry
        registry.follow_catalog()
        entry = registry.table(self.table_id)
        assert entry is not None
        return KvRules(entry)

    @property
    def local(self) -> LocalBucket:
        """Bucket 0."""
        return self.tablet.service.registry.find(TableBucket(self.table_id, None, 0))

    @property
    def kv(self) -> KvBucket:
        """The key-value half of bucket 0, which is open."""
        return self.local.opened_kv()

    def key(self, row: Row) -> bytes:
        """The key bytes of a row."""
        table_format = self.rules.format
        positions = [table_format.schema.position(name) for name in table_format.key_columns]
        types = [table_format.schema.data_types[position] for position in positions]
        return encode_key([row[position] for position in positions], types, table_format.key_encoding)

    def batch(
        self,
        records: Sequence[tuple[str, Row]],
        *,
        writer_id: int = -1,
        sequence: int = -1,
        schema_id: int | None = None,
    ) -> bytes:
        """A batch of ("put", row) and ("delete", row) records."""
        table_format = self.rules.format
        schema_id = schema_id or table_format.schema_id
        types = table_format.schemas[schema_id].data_types
        encode = _ENCODE[table_format.row_format]
        keys = [self.key(row) for _, row in records]
        rows = [encode(row, types) if what == "put" else None for what, row in records]
        return encode_kv_batch(keys, rows, schema_id, writer_id=writer_id, batch_sequence=sequence)

    def send(
        self, batch: bytes, *, targets: Sequence[int] = (), acks: int = -1, mode: int | None = None, version: int = 2
    ) -> Awaitable[Any]:
        """Begin a put of bucket 0."""
        message = pb.PutKvRequest(acks=acks, table_id=self.table_id, timeout_ms=10_000, target_columns=targets)
        if mode is not None:
            message.agg_mode = mode
        message.buckets_req.add(bucket_id=0, records=b"")
        request = ProduceRequest(message, [memoryview(bytearray(batch))], lambda: None)
        return self.tablet.begin(ApiKey.PUT_KV, request, api_version=version)

    async def put(self, *records: tuple[str, Row], **more: Any) -> pb.PbPutKvRespForBucket:
        """Put records and wait for the result."""
        options = {name: more.pop(name) for name in ("targets", "acks", "mode", "version") if name in more}
        answer = await self.send(self.batch(records, **more), **options)
        result: pb.PbPutKvRespForBucket = answer.buckets_resp[0]
        return result

    async def upsert(self, *rows: Row, **more: Any) -> pb.PbPutKvRespForBucket:
        """Put rows."""
        return await self.put(*[("put", row) for row in rows], **more)

    def state(self) -> dict[bytes, tuple[Any, ...]]:
        """All rows of the store by key."""
        reader = self.rules.format.reader
        return {key: tuple(reader.row(value)) for key, value in self.kv.store.scan()}

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows of the store in key order."""
        return list(self.state().values())

    async def changelog(self) -> list[Change]:
        """Everything that the log shows to readers."""
        table_format, changes, offset = self.rules.format, list[Change](), 0
        types = table_format.schema.data_types
        while True:
            answer = await self.tablet.fetch(self.table_id, offset)
            assert not answer.HasField("error_code"), answer
            before = offset
            for position, header in iter_batches(answer.records):
                columns, kinds = table_format.changelog.decode(answer.records, position, header=header)
                lists = [column_to_values(column, kind) for column, kind in zip(columns, types, strict=True)]
                for index, row in enumerate(zip(*lists, strict=True)):
                    kind = ChangeType(kinds[index]).short_string()
                    changes.append(Change(header.base_offset + index, kind, row))
                offset = header.next_offset
            if offset == before:
                return changes


class HeldStore:
    """Stops the store behind its first step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_go_on = False
        whole = KvStore.write_steps

        def steps(store: KvStore, *arguments: Any) -> Iterator[None]:
            for step in whole(store, *arguments):
                yield step
                while not self.may_go_on:
                    yield

        monkeypatch.setattr(KvStore, "write_steps", steps)


def replayed(changes: Sequence[Change], key_of: Any) -> Mapping[bytes, tuple[Any, ...]]:
    """The state that a reader of the changelog ends up with."""
    state: dict[bytes, tuple[Any, ...]] = {}
    for change in changes:
        if change.kind in ("+I", "+U"):
            state[key_of(change.row)] = tuple(change.row)
        else:
            assert state[key_of(change.row)] == tuple(change.row), "an old row that was not there"
            if change.kind == "-D":
                del state[key_of(change.row)]
    return state
