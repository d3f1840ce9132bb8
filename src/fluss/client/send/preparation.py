"""The prerequisites for sending batches of a bucket: a writer id, its partition's id, a connection to its leader.

All coroutines here run on the I/O thread. Errors that a later attempt may fix are retriable `FlussError`s; the others
mean that the rows for the bucket can never be written: no such table, no such partition (36), no permission (48).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from fluss.client.net.cluster import Cluster
from fluss.client.send.bucket_queue import BucketQueue
from fluss.codec.keys.partition_names import split_partition_name
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey

INIT_WRITER_SECONDS = 30.0
FIRST_INIT_PAUSE_SECONDS = 0.05
LAST_INIT_PAUSE_SECONDS = 1.0
PARTITION_WAIT_SECONDS = 30.0
PARTITION_PAUSE_SECONDS = 0.01


def may_pass(error: FlussError) -> bool:
    """True if a writer retries by itself. A full disk is reported at once: an operator has to make room."""
    return error.is_retriable and error.error_code != ErrorCode.DISK_WRITE_LOCKED


class WriterIds:
    """The writer id of a connection: requested once, shared by all buckets, dropped when a server has forgotten it."""

    def __init__(self, cluster: Cluster, enabled: bool) -> None:
        self.current: int | None = None if enabled else -1
        self._cluster = cluster
        self._enabled = enabled
        self._asking: asyncio.Task[int] | None = None

    def drop(self, writer_id: int) -> None:
        """Drop the id; sequences start again under a new one, which a bucket that is late must not drop too."""
        if self._enabled and self.current == writer_id:
            self.current = None

    async def get(self, paths: Iterable[TablePath]) -> int:
        """The id, requested if there is none."""
        if self.current is not None:
            return self.current
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask(tuple(paths)))
            self._asking.add_done_callback(self._asked)
        return await asyncio.shield(self._asking)

    def _asked(self, task: asyncio.Task[int]) -> None:
        self._asking = None
        if not task.cancelled() and task.exception() is None:
            self.current = task.result()

    async def _ask(self, paths: tuple[TablePath, ...]) -> int:
        request = pb.InitWriterRequest()
        for path in paths:
            request.table_path.add(database_name=path.database_name, table_name=path.table_name)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + INIT_WRITER_SECONDS
        pause = FIRST_INIT_PAUSE_SECONDS
        while True:
            try:
                connection = await self._cluster.any_tablet()
                answer = await connection.call(ApiKey.INIT_WRITER, request)
                return int(answer.writer_id)
            except FlussError as error:
                if self._cluster.closed or not may_pass(error) or loop.time() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_INIT_PAUSE_SECONDS)


async def prepare_bucket(cluster: Cluster, queue: BucketQueue, create_partitions: bool) -> None:
    """Find the bucket's partition id and connect to its leader."""
    if queue.bucket is None or cluster.leader_node(queue.bucket) is None:
        await cluster.refresh(tables=[queue.path])
        table = cluster.metadata.table(queue.path)
        if table is not None and table.table_id != queue.table_id:
            # Its buckets never get a leader again: fail instead of waiting for one.
            text = f"table {queue.path} was dropped and created again since it was opened: open it again to write to it"
            raise FlussError(text, ErrorCode.TABLE_NOT_EXIST)
        if queue.partition_name is not None:
            cluster.metadata.forget_partition(queue.path, queue.partition_name)
            queue.locate(await find_partition(cluster, queue.path, queue.partition_name, create_partitions))
    assert queue.bucket is not None
    await cluster.leader(queue.bucket, queue.path)


async def find_partition(cluster: Cluster, path: TablePath, name: str, create: bool) -> int:
    """The id of a partition. A missing one is created if the configuration says so, otherwise it is code 36."""
    try:
        return await cluster.partition_id(path, name)
    except FlussError as error:
        if error.error_code != ErrorCode.PARTITION_NOT_EXISTS:
            raise
        if not create:
            text = f"table {path} has no partition {name!r}; create it before writing to it, or set "
            text += "writer.dynamic-create-partition.enabled"
            raise FlussError(text, ErrorCode.PARTITION_NOT_EXISTS) from None
    await _create_partition(cluster, path, name)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PARTITION_WAIT_SECONDS
    while True:
        try:
            return await cluster.partition_id(path, name)
        except FlussError as error:
            if error.error_code != ErrorCode.PARTITION_NOT_EXISTS or loop.time() > deadline:
                raise
        await asyncio.sleep(PARTITION_PAUSE_SECONDS)


async def _create_partition(cluster: Cluster, path: TablePath, name: str) -> None:
    table = await cluster.table(path)
    request = pb.CreatePartitionRequest(ignore_if_not_exists=True)
    request.table_path.database_name, request.table_path.table_name = path.database_name, path.table_name
    for key, value in split_partition_name(name, table.descriptor.partition_keys).items():
        request.partition_spec.partition_key_values.add(key=key, value=value)
    await cluster.call_coordinator(ApiKey.CREATE_PARTITION, request)
