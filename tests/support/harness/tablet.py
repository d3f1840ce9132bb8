"""A tablet without sockets: requests go straight to its handlers, the disk and the clock belong to the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import APIS, ApiKey
from fluss.server.runtime.handlers import ProduceRequest, RequestContext
from fluss.server.storage.files import FileSystem
from fluss.server.tablet.service import TabletService
from tests.support.harness.coordinator import CoordinatorHarness
from tests.support.servers.log_cluster import COLUMNS
from tools.servers.messages import table_document
from tools.waiting import patience

DEADLINE_SECONDS = patience(60.0)


class HeldFiles(FileSystem):
    """A disk on which syncs, or openings of files, wait until the test lets them go."""

    def __init__(self) -> None:
        self.syncs = threading.Event()
        self.listings = threading.Event()
        self.syncs.set()
        self.listings.set()

    def fdatasync(self, descriptor: int) -> None:
        self.syncs.wait(DEADLINE_SECONDS)
        super().fdatasync(descriptor)

    def list_directory(self, path: str) -> list[str]:
        self.listings.wait(DEADLINE_SECONDS)
        return super().list_directory(path)

    def let_go(self) -> None:
        """Nothing waits any more."""
        self.syncs.set()
        self.listings.set()


class TabletHarness:
    """One tablet, and a coordinator on the same catalog. Everything happens in the running event loop."""

    def __init__(self, directory: Path, *, files: FileSystem | None = None, tablets: int = 1, **overrides: Any) -> None:
        self.coordinator = CoordinatorHarness(directory, tablets=tablets, **overrides)
        self.directory = directory
        self._files = files
        self.releases = 0
        self.service = TabletService(
            self.coordinator.config,
            self.coordinator.tablet_catalog,
            self.coordinator.topology,
            0,
            lambda: self.coordinator.now_ms,
            files,
        )

    async def __aenter__(self) -> TabletHarness:
        await self.service.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        if isinstance(self._files, HeldFiles):
            self._files.let_go()  # A test that failed must not hang in the end.
        await self.service.stop()
        self.coordinator.close()

    def create_table(self, name: str, **more: Any) -> int:
        """A log table; returns its id."""
        more.setdefault("columns", COLUMNS)
        more.setdefault("bucket_count", 1)
        self.coordinator.create_table(name, table_document(**more))
        return int(self.coordinator.table_info(name).table_id)

    async def call(self, key: ApiKey, message: Any, **context: Any) -> Any:
        """The answer of a handler, parsed."""
        return self.parsed(key, await self.begin(key, message, **context))

    def begin(self, key: ApiKey, message: Any, **context: Any) -> Awaitable[Any]:
        """Run a handler up to its first wait; the returned future has its answer."""
        answer = self.service.apis()[key](RequestContext(key, **context), message)
        return answer if isinstance(answer, asyncio.Future) else asyncio.ensure_future(_settle(answer))

    def parsed(self, key: ApiKey, answer: Any) -> Any:
        """An answer as a message, whether it came as one or in pieces."""
        body = answer.SerializeToString() if isinstance(answer, Message) else b"".join(map(bytes, answer))
        return APIS[key].response.FromString(body)

    def produce(
        self, table: int, *records: bytes, acks: int = -1, timeout_ms: int = 10_000, **context: Any
    ) -> Awaitable[Any]:
        """Write `records[i]` to bucket i."""
        message = pb.ProduceLogRequest(acks=acks, table_id=table, timeout_ms=timeout_ms)
        for bucket in range(len(records)):
            message.buckets_req.add(bucket_id=bucket, records=b"")
        views = [memoryview(bytearray(item)) for item in records]
        return self.begin(ApiKey.PRODUCE_LOG, ProduceRequest(message, views, self._released()), **context)

    def _released(self) -> Callable[[], None]:
        calls: list[None] = []

        def release() -> None:
            calls.append(None)
            assert len(calls) == 1, "a buffer was given back twice"
            self.releases += 1

        return release

    async def fetch(self, table: int, offset: int = 0, bucket: int = 0, **more: Any) -> pb.PbFetchLogRespForBucket:
        """Read one bucket."""
        context = more.pop("context", {})
        request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 20, **more)
        wanted = request.tables_req.add(table_id=table, projection_pushdown_enabled=False)
        wanted.buckets_req.add(bucket_id=bucket, fetch_offset=offset, max_fetch_bytes=1 << 20)
        answer = await self.call(ApiKey.FETCH_LOG, request, **context)
        result: pb.PbFetchLogRespForBucket = answer.tables_resp[0].buckets_resp[0]
        return result


async def _settle(answer: Any) -> Any:
    return await answer if asyncio.iscoroutine(answer) else answer
