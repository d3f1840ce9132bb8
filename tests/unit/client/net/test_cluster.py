"""Metadata and connections of a cluster: caching, single flight, back-off, wrong and missing leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss.client.net import cluster as cluster_module
from fluss.client.net.cluster import Cluster
from fluss.config import Config
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket, TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.protocol.frames import error_frame
from fluss.values.basic import TABLET_SERVER, ServerNode
from tests.support.servers.scripted_server import CLOSE, ScriptedServer, success
from tools.waiting import patience

TABLE_JSON = (
    b'{"version":1,"schema":{"version":1,"columns":[{"name":"id","data_type":{"type":"INTEGER"},"id":0}],'
    b'"highest_field_id":0},"partition_key":[],"bucket_key":[],"bucket_count":2,"properties":{}}'
)
PATH = TablePath("fluss", "t")
Answer = Callable[[ScriptedServer, pb.MetadataRequest], pb.MetadataResponse]


def metadata(server: ScriptedServer, request: pb.MetadataRequest, leader: int | None = 0) -> pb.MetadataResponse:
    """A cluster in which one address is both coordinator and tablet server 0."""
    host, port = server.address
    answer = pb.MetadataResponse()
    answer.coordinator_server.CopyFrom(pb.PbServerNode(node_id=0, host=host, port=port))
    answer.tablet_servers.add(node_id=0, host=host, port=port)
    for path in request.table_path:
        table = answer.table_metadata.add(
            table_id=5, schema_id=1, table_json=TABLE_JSON, created_time=1, modified_time=1
        )
        table.table_path.CopyFrom(path)
        for bucket_id in range(2):
            table.bucket_metadata.add(bucket_id=bucket_id, leader_id=leader)
    return answer


class Scene:
    """A scripted server whose metadata answers a test can change."""

    def __init__(self, answer: Answer = metadata) -> None:
        self.answer = answer
        self.override: Callable[[int, int], bytes | None] = lambda api_key, request_id: None
        self.server = ScriptedServer(self._script)

    def _script(self, number: int, api_key: int, request_id: int, body: bytes) -> bytes:
        special = self.override(api_key, request_id)
        if special is not None:
            return special
        if api_key == ApiKey.GET_METADATA:
            request = pb.MetadataRequest.FromString(body)
            return success(request_id, self.answer(self.server, request).SerializeToString())
        return success(request_id, b"")

    def run(self, body: Callable[[Cluster], Coroutine[Any, Any, None]], **options: str) -> None:
        """Run a test body with a started cluster."""

        async def main() -> None:
            host, port = self.server.address
            settings = {"bootstrap.servers": f"{host}:{port}", "request-timeout": "5000", **options}
            cluster = Cluster(Config(settings))
            await cluster.start()
            await body(cluster)
            await cluster.close()

        with self.server:
            asyncio.run(asyncio.wait_for(main(), patience(60)))

    def asked(self, api_key: int) -> int:
        """How often an API was called."""
        return self.server.requests.count(api_key)


def test_the_same_question_is_asked_once_at_a_time() -> None:
    scene = Scene()

    async def body(cluster: Cluster) -> None:
        before = scene.asked(ApiKey.GET_METADATA)
        await asyncio.gather(*(cluster.table(PATH) for _ in range(20)))
        assert scene.asked(ApiKey.GET_METADATA) == before + 1
        await cluster.table(PATH)
        assert scene.asked(ApiKey.GET_METADATA) == before + 1, "from the cache"
        await asyncio.gather(*(cluster.table(PATH, fresh=True) for _ in range(3)))
        assert scene.asked(ApiKey.GET_METADATA) == before + 4

    scene.run(body)


def test_one_connection_per_server_whoever_asks_first() -> None:
    scene = Scene()

    async def body(cluster: Cluster) -> None:
        await cluster.table(PATH)
        buckets = [TableBucket(5, None, 0), TableBucket(5, None, 1)]
        found = await asyncio.gather(*(cluster.leader(bucket, PATH) for bucket in buckets * 10))
        assert len(set(map(id, found))) == 1
        node = cluster.leader_node(buckets[0])
        assert node is not None
        assert cluster.open_connection_to(node) is found[0]

    scene.run(body)


def test_a_missing_leader_is_waited_for() -> None:
    rounds = []

    def answer(server: ScriptedServer, request: pb.MetadataRequest) -> pb.MetadataResponse:
        if request.table_path:
            rounds.append(1)
        return metadata(server, request, leader=0 if len(rounds) >= 4 else None)

    async def body(cluster: Cluster) -> None:
        await cluster.leader(TableBucket(5, None, 0), PATH)
        assert len(rounds) == 4

    Scene(answer).run(body)


def test_a_leader_that_never_comes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "LEADER_WAIT_SECONDS", 0.1)

    async def body(cluster: Cluster) -> None:
        with pytest.raises(FlussError, match=r"bucket 0 of table fluss\.t has no leader") as caught:
            await cluster.leader(TableBucket(5, None, 0), PATH)
        assert caught.value.error_code == ErrorCode.LEADER_NOT_AVAILABLE_EXCEPTION

    Scene(lambda server, request: metadata(server, request, leader=77)).run(body)


def test_invalid_entries_are_asked_for_again() -> None:
    scene = Scene()

    async def body(cluster: Cluster) -> None:
        bucket = TableBucket(5, None, 0)
        await cluster.leader(bucket, PATH)
        before = scene.asked(ApiKey.GET_METADATA)
        cluster.invalidate(bucket)
        assert cluster.leader_node(bucket) is None
        assert cluster.leader_node(TableBucket(5, None, 1)) is not None
        await cluster.leader(bucket, PATH)
        cluster.invalidate_server(0)
        assert cluster.leader_node(TableBucket(5, None, 1)) is None
        await cluster.leader(bucket, PATH)
        assert scene.asked(ApiKey.GET_METADATA) == before + 2

    scene.run(body)


def test_failed_connections_are_retried_with_growing_pauses() -> None:
    async def body(cluster: Cluster) -> None:
        unreachable = ServerNode(9, "127.0.0.1", 1, TABLET_SERVER)
        started = asyncio.get_running_loop().time()
        for _ in range(4):
            with pytest.raises(FlussError) as caught:
                await cluster.connection(unreachable)
            assert caught.value.error_code == ErrorCode.NETWORK_EXCEPTION
        assert asyncio.get_running_loop().time() - started >= 0.05 + 0.1 + 0.2

    Scene().run(body)


def test_a_lost_connection_is_replaced() -> None:
    scene = Scene()

    async def body(cluster: Cluster) -> None:
        first = await cluster.coordinator()
        first.close()
        assert await cluster.coordinator() is not first
        scene.override = lambda api_key, request_id: (
            CLOSE if api_key == ApiKey.LIST_DATABASES and scene.asked(api_key) == 1 else None
        )
        request = pb.ListDatabasesRequest()
        await cluster.call_coordinator(ApiKey.LIST_DATABASES, request, idempotent=True)
        assert scene.asked(ApiKey.LIST_DATABASES) == 2, "a question is asked again"
        scene.override = lambda api_key, request_id: CLOSE if api_key == ApiKey.CREATE_DATABASE else None
        create = pb.CreateDatabaseRequest(database_name="d", ignore_if_exists=False)
        with pytest.raises(FlussError) as caught:
            await cluster.call_coordinator(ApiKey.CREATE_DATABASE, create)
        assert caught.value.error_code == ErrorCode.NETWORK_EXCEPTION
        assert scene.asked(ApiKey.CREATE_DATABASE) == 1, "an order is not: it may have been carried out"

    scene.run(body)


def test_the_code_of_a_missing_table_is_found_on_servers_that_hide_it() -> None:
    scene = Scene()

    def override(api_key: int, request_id: int) -> bytes | None:
        if api_key == ApiKey.GET_METADATA and scene.asked(ApiKey.GET_METADATA) > 1:
            return error_frame(request_id, -1, "a stack trace")
        if api_key == ApiKey.GET_TABLE_INFO:
            return error_frame(request_id, 7, "no such table")
        return None

    async def body(cluster: Cluster) -> None:
        scene.override = override
        with pytest.raises(FlussError, match="no such table") as caught:
            await cluster.table(PATH, fresh=True)
        assert caught.value.error_code == ErrorCode.TABLE_NOT_EXIST

    scene.run(body)


def test_a_table_that_was_made_anew_replaces_everything_known_about_it() -> None:
    ids = iter((5, 6))

    def answer(server: ScriptedServer, request: pb.MetadataRequest) -> pb.MetadataResponse:
        response = metadata(server, request)
        for table in response.table_metadata:
            table.table_id = next(ids)
        return response

    async def body(cluster: Cluster) -> None:
        assert (await cluster.table(PATH)).table_id == 5
        assert (await cluster.table(PATH, fresh=True)).table_id == 6
        assert cluster.leader_node(TableBucket(5, None, 0)) is None
        assert cluster.leader_node(TableBucket(6, None, 0)) is not None

    Scene(answer).run(body)


def test_an_unreadable_table_says_so() -> None:
    def answer(server: ScriptedServer, request: pb.MetadataRequest) -> pb.MetadataResponse:
        response = metadata(server, request)
        for table in response.table_metadata:
            table.table_json = b'{"schema": {"columns": [{"name": "x", "data_type": {"type": "HYPERCUBE"}}]}}'
        return response

    async def body(cluster: Cluster) -> None:
        with pytest.raises(FlussError, match="unknown data type 'HYPERCUBE'"):
            await cluster.table(PATH)

    Scene(answer).run(body)


def test_a_closed_cluster_refuses_everything() -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.close()
        for call in (cluster.table(PATH, fresh=True), cluster.coordinator(), cluster.refresh()):
            with pytest.raises(FlussError, match="the connection is closed"):
                await call

    Scene().run(body)


def test_partitions_are_found_by_name_on_a_real_server(tmp_path: Path) -> None:
    schema = fluss.Schema(pa.schema([("id", pa.int32()), ("region", pa.string())]))

    async def body(connection: fluss.FlussConnection) -> None:
        admin = connection.get_admin()
        path = fluss.TablePath("fluss", "p")
        await admin.create_table(path, fluss.TableDescriptor(schema, partition_keys=["region"]))
        await admin.create_partition(path, {"region": "US"})
        (info,) = await admin.list_partition_infos(path)
        session = connection._session
        assert await session.awaitable(session.cluster.partition_id(path, "US")) == info.partition_id
        with pytest.raises(FlussError) as caught:
            await session.awaitable(session.cluster.partition_id(path, "EU"))
        assert caught.value.error_code == ErrorCode.PARTITION_NOT_EXISTS
        bucket = TableBucket((await admin.get_table_info(path)).table_id, info.partition_id, 0)
        await session.awaitable(session.cluster.leader(bucket, path))

    with (
        fluss.embedded(tmp_path) as server,
        fluss.FlussConnection.open(fluss.Config({"bootstrap.servers": server.bootstrap_servers})) as connection,
    ):
        asyncio.run(body(connection))
