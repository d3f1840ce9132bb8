"""A coordinator without sockets: requests go straight to its handlers, the clock is set by the test."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fluss.errors import FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import APIS, ApiKey
from fluss.server.apis.read_apis import SharedApis
from fluss.server.apis.topology import Topology
from fluss.server.catalog import Catalog, CatalogStore
from fluss.server.config.server_config import ServerConfig
from fluss.server.coordinator.service import CoordinatorService
from fluss.server.runtime.handlers import RequestContext
from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.checkpoint import Checkpoint, encode_checkpoint, write_checkpoint
from tests.support.waiting import patience

NOON_2024_09_19_MS = 1_726_747_200_000
"""2024-09-19 12:00 UTC."""


def int_column(name: str, **more: Any) -> dict[str, Any]:
    """JSON of an INT column."""
    return {"name": name, "data_type": {"type": "INTEGER"}, **more}


def text_column(name: str, **more: Any) -> dict[str, Any]:
    """JSON of a STRING column."""
    return {"name": name, "data_type": {"type": "STRING"}, **more}


def table_document(
    columns: Sequence[Mapping[str, Any]] = (),
    *,
    primary_key: Sequence[str] = (),
    partition_key: Sequence[str] = (),
    bucket_key: Sequence[str] = (),
    bucket_count: int | None = None,
    properties: Mapping[str, str] | None = None,
    custom_properties: Mapping[str, str] | None = None,
    comment: str | None = None,
    schema: Mapping[str, Any] | None = None,
) -> bytes:
    """A table descriptor as a client sends it."""
    node: dict[str, Any] = {"version": 1, "schema": {"version": 1, "columns": list(columns or [int_column("a")])}}
    if primary_key:
        node["schema"]["primary_key"] = list(primary_key)
    node["schema"].update(schema or {})
    node |= {"partition_key": list(partition_key), "bucket_key": list(bucket_key)}
    if bucket_count is not None:
        node["bucket_count"] = bucket_count
    if comment is not None:
        node["comment"] = comment
    node |= {"properties": dict(properties or {}), "custom_properties": dict(custom_properties or {})}
    return json.dumps(node).encode()


class CoordinatorHarness:
    """One coordinator over a fresh data directory, and a tablet's view of the same catalog."""

    def __init__(self, directory: Path, *, tablets: int = 1, **overrides: Any) -> None:
        self.now_ms = NOON_2024_09_19_MS
        # The first use of a lake in a process loads much, which takes long on a machine that has much else to do.
        overrides.setdefault("lake_request_timeout_ms", int(1000 * patience(120.0)))
        self.config = ServerConfig.for_tests(directory, **overrides)
        self.topology = Topology(
            {"FLUSS": ("127.0.0.1", 9123), "CLIENT": ("example.org", 9223)},
            [
                {"FLUSS": ("127.0.0.1", 9200 + index), "CLIENT": ("example.org", 9300 + index)}
                for index in range(tablets)
            ],
        )
        self.path = directory / "catalog.sqlite"
        self.catalog = Catalog(CatalogStore(self.path))
        # These tests look at answers; that changes are durable is tested with the catalog itself.
        self.catalog.store.file.connection.execute("PRAGMA synchronous = OFF")
        self.service = CoordinatorService(self.config, self.catalog, self.topology, lambda: self.now_ms)
        self.tablet_catalog = Catalog(CatalogStore(self.path))
        self._apis = self.service.apis()
        self._tablet_apis = SharedApis(self.config, self.tablet_catalog, self.topology, lambda: self.now_ms).apis()

    def close(self) -> None:
        """Close both connections."""
        self.catalog.store.close()
        self.tablet_catalog.store.close()

    def call(self, key: ApiKey, message: Any, *, tablet: bool = False, **context: Any) -> Any:
        """The handler's answer; every message goes through its bytes, so required fields are checked too."""
        handler = (self._tablet_apis if tablet else self._apis)[key]
        request = APIS[key].request.FromString(message.SerializeToString())
        answer = handler(RequestContext(key, **context), request)
        if inspect.iscoroutine(answer):
            # In a thread of its own: the caller may be in an event loop.
            with ThreadPoolExecutor(1) as thread:
                answer = thread.submit(asyncio.run, answer).result()
        assert isinstance(answer, APIS[key].response)
        return APIS[key].response.FromString(answer.SerializeToString())

    def loop_steps_during(self, key: ApiKey, message: Any, **context: Any) -> int:
        """How often the event loop came round while the request was served."""

        async def count() -> int:
            serving: Any = self._apis[key](RequestContext(key, **context), message)
            answer = asyncio.ensure_future(serving)
            steps = 0
            while not answer.done():
                steps += 1
                await asyncio.sleep(0)
            await answer
            return steps

        return asyncio.run(count())

    def refuses(self, code: int, key: ApiKey, message: Any, **context: Any) -> str:
        """Assert that a call fails with `code`; returns the text."""
        with pytest.raises(FlussError) as caught:
            self.call(key, message, **context)
        assert caught.value.error_code == code, caught.value
        assert caught.value.message
        return caught.value.message

    # Short forms of the most frequent calls

    def create_table_request(
        self, name: str, document: bytes, *, database: str = "fluss", ignore: bool = False
    ) -> pb.CreateTableRequest:
        return pb.CreateTableRequest(table_path=path(name, database), table_json=document, ignore_if_exists=ignore)

    def create_table(self, name: str, document: bytes | None = None, **more: Any) -> None:
        document = table_document() if document is None else document
        self.call(ApiKey.CREATE_TABLE, self.create_table_request(name, document, **more))

    def refuses_table(self, code: int, document: bytes, **more: Any) -> str:
        return self.refuses(code, ApiKey.CREATE_TABLE, self.create_table_request("t", document, **more))

    def table_info(self, name: str) -> pb.GetTableInfoResponse:
        answer = self.call(ApiKey.GET_TABLE_INFO, pb.GetTableInfoRequest(table_path=path(name)))
        assert isinstance(answer, pb.GetTableInfoResponse)
        return answer

    def written_logs(self, end_offset: int = 1000) -> None:
        """What tablets leave behind: the logs of all buckets are written up to there."""
        content = encode_checkpoint(Checkpoint(0, end_offset, 0, 0, 0, 0, 0))
        self.catalog.refresh()
        for entry in self.catalog.tables():
            partitions = [partition.partition_id for partition in entry.partitions.values()]
            for partition_id in partitions if entry.is_partitioned else [None]:
                for bucket_id in range(entry.bucket_count):
                    bucket = TableBucket(entry.table_id, partition_id, bucket_id)
                    directory = self.config.data_dir / self.catalog.directory(bucket)
                    directory.mkdir(parents=True, exist_ok=True)
                    write_checkpoint(FileSystem(), str(directory), content)

    def table_node(self, name: str) -> Any:
        return json.loads(self.table_info(name).table_json)

    def partition_names(self, name: str) -> list[str]:
        answer = self.call(ApiKey.LIST_PARTITION_INFOS, pb.ListPartitionInfosRequest(table_path=path(name)))
        return [
            "$".join(pair.value for pair in info.partition_spec.partition_key_values) for info in answer.partitions_info
        ]


def path(name: str, database: str = "fluss") -> pb.PbTablePath:
    """A table path message."""
    return pb.PbTablePath(database_name=database, table_name=name)


def spec(**values: str) -> pb.PbPartitionSpec:
    """A partition spec message."""
    return pb.PbPartitionSpec(
        partition_key_values=[pb.PbKeyValue(key=key, value=value) for key, value in values.items()]
    )


def create_partition(name: str, ignore: bool = False, **values: str) -> pb.CreatePartitionRequest:
    """A CREATE_PARTITION request."""
    return pb.CreatePartitionRequest(table_path=path(name), partition_spec=spec(**values), ignore_if_not_exists=ignore)


def drop_partition(name: str, ignore: bool = False, **values: str) -> pb.DropPartitionRequest:
    """A DROP_PARTITION request."""
    return pb.DropPartitionRequest(table_path=path(name), partition_spec=spec(**values), ignore_if_not_exists=ignore)


def alter_properties(name: str, changes: Mapping[str, str | None], **more: Any) -> pb.AlterTableRequest:
    """An ALTER_TABLE request; None deletes a key."""
    return pb.AlterTableRequest(
        table_path=path(name),
        ignore_if_not_exists=False,
        config_changes=[config_change(key, value) for key, value in changes.items()],
        **more,
    )


def config_change(key: str, value: str | None, operation: int | None = None) -> pb.PbAlterConfig:
    """SET, or DELETE for None, or another operation."""
    return pb.PbAlterConfig(
        config_key=key, config_value=value, op_type=operation if operation is not None else int(value is None)
    )
