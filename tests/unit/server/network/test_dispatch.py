"""What a connected client gets for good and bad requests, over real sockets, on both kinds of event loop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.protocol.frames import request_frame
from tests.support.servers.toy_network import RunningNetwork, running_network
from tools.servers.wire_client import WireClient


@pytest.fixture(params=["uvloop", "asyncio"])
def network(request: pytest.FixtureRequest) -> Iterator[RunningNetwork]:
    with running_network(use_uvloop=request.param == "uvloop") as running:
        yield running


@pytest.fixture
def client(network: RunningNetwork) -> Iterator[WireClient]:
    with network.client() as connected:
        yield connected


def _refused(client: WireClient, api_key: int, body: bytes, api_version: int = 0) -> FlussError:
    with pytest.raises(FlussError) as error:
        client.receive(client.send(api_key, body, api_version))
    return error.value


TABLE = pb.PbTablePath(database_name="d", table_name="t")


def test_versions_list_what_is_served(network: RunningNetwork, client: WireClient) -> None:
    answer = client.api_versions()
    listed = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_versions}
    assert list(listed) == sorted({*map(int, network.service.apis()), 1000, 1038})
    assert set(listed.values()) == {(0, 0)}
    assert answer.server_type == 2


def test_sync_and_async_handlers_answer(client: WireClient) -> None:
    answer = client.metadata(("d", "t"), ("d", "u"))
    assert answer.coordinator_server.port == 2
    assert client.call(ApiKey.TABLE_EXISTS, pb.TableExistsRequest(table_path=TABLE)).exists


def test_a_handler_knows_the_caller(network: RunningNetwork, client: WireClient) -> None:
    client.metadata()
    context = network.service.contexts[-1]
    assert (context.api_key, context.api_version, context.request_id) == (1012, 0, 0)
    assert (context.principal_type, context.principal_name) == ("User", "ANONYMOUS")
    assert (context.listener, context.is_internal, context.client_host) == ("FLUSS", True, "127.0.0.1")


@pytest.mark.parametrize("api_key", [0, 5, 999, 1065, 32767, -1, -32768])
def test_unknown_keys_get_code_2(client: WireClient, api_key: int) -> None:
    error = _refused(client, api_key, b"anything")
    assert error.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert str(api_key) in error.message
    client.metadata()


def test_known_keys_of_another_role_get_code_2(client: WireClient) -> None:
    assert _refused(client, ApiKey.CREATE_TABLE, b"").error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("api_key", "version"), [(1012, 1), (1012, -1), (1000, 1), (1038, 7), (1014, 3)])
def test_unsupported_versions_get_code_2(client: WireClient, api_key: int, version: int) -> None:
    error = _refused(client, api_key, b"", version)
    assert error.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert f"version {version}" in error.message
    client.metadata()


@pytest.mark.parametrize(
    ("api_key", "body"),
    [
        (ApiKey.GET_METADATA, b"\x0a"),
        (ApiKey.GET_METADATA, b"\x0a\x00"),
        (ApiKey.TABLE_EXISTS, b""),
        (ApiKey.API_VERSIONS, b""),
        (ApiKey.AUTHENTICATE, b"\xff\xff"),
        (ApiKey.PRODUCE_LOG, b"\x22\x05"),
        (ApiKey.PRODUCE_LOG, b""),
        (ApiKey.DATABASE_EXISTS, b"\x0a\x01\xff"),
    ],
)
def test_malformed_bodies_get_code_3_and_the_connection_lives(client: WireClient, api_key: int, body: bytes) -> None:
    assert _refused(client, api_key, body).error_code == ErrorCode.CORRUPT_MESSAGE
    client.metadata()


def test_errors_of_handlers(client: WireClient) -> None:
    error = _refused(client, ApiKey.LIST_TABLES, pb.ListTablesRequest(database_name="x").SerializeToString())
    assert error.error_code == ErrorCode.DATABASE_NOT_EXIST
    assert error.message == "database 'x' does not exist"
    unexpected = _refused(client, ApiKey.GET_TABLE_INFO, pb.GetTableInfoRequest(table_path=TABLE).SerializeToString())
    assert unexpected.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert unexpected.message == "GET_TABLE_INFO failed: RuntimeError: boom"
    incomplete = pb.GetDatabaseInfoRequest(database_name="x").SerializeToString()
    assert _refused(client, ApiKey.GET_DATABASE_INFO, incomplete).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    client.metadata()


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 7, 2**31 - 1, 100 * 1024 * 1024])
def test_impossible_lengths_end_the_connection(network: RunningNetwork, client: WireClient, length: int) -> None:
    client.send_bytes(length.to_bytes(4, "big", signed=True) + b"\x03\xf4\x00\x00\x00\x00\x00\x01")
    assert client.is_closed_by_server()
    with network.client() as other:
        other.metadata()


def test_a_control_request_above_its_limit_is_answered_and_ends_the_connection(client: WireClient) -> None:
    size = 5 * 1024 * 1024
    client.send_bytes((size).to_bytes(4, "big") + request_frame(ApiKey.GET_METADATA, 0, 9, b"")[4:])
    request_id, kind, _ = client.receive_frame()
    assert (request_id, kind) == (9, 1)
    assert client.is_closed_by_server()


@pytest.mark.parametrize("size", [0, 1, 1000, 60_000, 70_000, 300_000, 3_000_000])
def test_records_of_all_sizes_arrive(client: WireClient, size: int) -> None:
    for _ in range(3):
        assert client.produce(1, 4, b"r" * size).base_offset == size


def test_records_of_several_buckets(client: WireClient) -> None:
    request = pb.ProduceLogRequest(acks=-1, table_id=1, timeout_ms=1)
    for bucket in range(5):
        request.buckets_req.add(bucket_id=bucket, records=b"x" * (bucket * 50_000))
    answer = client.call(ApiKey.PRODUCE_LOG, request)
    assert [(each.bucket_id, each.base_offset) for each in answer.buckets_resp] == [
        (bucket, bucket * 50_000) for bucket in range(5)
    ]


def test_released_buffers_are_reused_and_accounted(network: RunningNetwork, client: WireClient) -> None:
    for _ in range(5):
        client.produce(1, 0, b"x" * 1_000_000)
    assert network.in_loop(lambda: network.server.received.bytes) == 0
    assert network.in_loop(lambda: network.server.pool.pooled_bytes) == 1 << 20


def test_answers_in_pieces(network: RunningNetwork, client: WireClient) -> None:
    network.service.fetch_payload = [memoryview(bytes([index]) * 200_000) for index in range(5)]
    assert client.fetch(1, 0, 0).records == b"".join(bytes([index]) * 200_000 for index in range(5))
    network.service.fetch_payload = []
    answer = client.fetch(1, 0, 0)
    assert answer.HasField("records")
    assert answer.records == b""


def test_requests_start_in_arrival_order_and_slow_ones_do_not_block_others(
    network: RunningNetwork, client: WireClient
) -> None:
    slow = client.send(ApiKey.DATABASE_EXISTS, pb.DatabaseExistsRequest(database_name="d"))
    second = client.send(ApiKey.GET_METADATA, pb.MetadataRequest())
    third = client.send(ApiKey.TABLE_EXISTS, pb.TableExistsRequest(table_path=TABLE))
    client.receive(second)
    client.receive(third)
    expected = [("database_exists", slow), ("metadata", second), ("table_exists", third)]
    assert network.service.order == expected
    network.in_loop(lambda: network.service.parked[0].set_result(True))
    assert client.receive(slow).exists


def test_a_failing_coroutine_gives_an_error_frame(network: RunningNetwork, client: WireClient) -> None:
    slow = client.send(ApiKey.DATABASE_EXISTS, pb.DatabaseExistsRequest(database_name="d"))
    client.metadata()
    error = FlussError("gone", ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION)
    network.in_loop(lambda: network.service.parked[0].set_exception(error))
    with pytest.raises(FlussError, match="gone") as raised:
        client.receive(slow)
    assert raised.value.error_code == ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION


def test_thousands_of_pipelined_requests_in_one_write(network: RunningNetwork, client: WireClient) -> None:
    count = 5000
    client.send_bytes(b"".join(request_frame(ApiKey.GET_METADATA, 0, number, b"") for number in range(count)))
    assert [client.receive_frame()[0] for _ in range(count)] == list(range(count))
    assert [number for _, number in network.service.order] == list(range(count))


def test_frames_in_single_bytes(client: WireClient) -> None:
    frame = request_frame(ApiKey.GET_METADATA, 0, 3, b"\x0a\x06\x0a\x01d\x12\x01t")
    for position in range(len(frame)):
        client.send_bytes(frame[position : position + 1])
    assert client.receive_frame()[:2] == (3, 0)


def test_a_big_frame_split_anywhere_with_a_small_one_after_it(client: WireClient) -> None:
    request = pb.ProduceLogRequest(acks=1, table_id=1, timeout_ms=1)
    request.buckets_req.add(bucket_id=0, records=b"z" * 200_000)
    stream = request_frame(ApiKey.PRODUCE_LOG, 0, 1, request.SerializeToString())
    stream += request_frame(ApiKey.GET_METADATA, 0, 2, b"")
    for cut in (1, 3, 5, 11, 12, 13, 70_000, 200_000, len(stream) - 13, len(stream) - 1):
        client.send_bytes(stream[:cut])
        client.send_bytes(stream[cut:])
        assert [client.receive_frame()[:2] for _ in range(2)] == [(1, 0), (2, 0)]
