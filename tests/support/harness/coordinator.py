"""A coordinator without sockets: requests go straight to its handlers, the clock is set by the test."""

from __future__ import annotations

import asyncio
import inspect
import json
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
from tools.servers.messages import path, table_document
from tools.waiting import patience

NOON_2024_09_19_MS = 1_726_747_200_000
"""2024-09-19 12:00 UTC."""


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
