"""Writing and reading log tables over the wire: what clients expect of PRODUCE_LOG, FETCH_LOG and LIMIT_SCAN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from fluss.codec.arrow.compression import NO_COMPRESSION
from fluss.codec.batches.arrow_batch import encode_arrow_batch
from fluss.codec.batches.log_batch import empty_batch, iter_batches, read_header
from fluss.codec.batches.row_log_batch import encode_row_batch
from fluss.codec.rows.columns import RowFormat
from fluss.errors import ErrorCode, FlussError
from fluss.model.schema import Column, Schema
from fluss.model.types import IntType, StringType
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tests.support.servers.log_cluster import ARROW_SCHEMA, LogCluster, arrow_batch, arrow_rows, ids_of, path_of
from tools.servers.wire_client import WireClient


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogCluster]:
    with LogCluster(tmp_path_factory.mktemp("server")) as cluster:
        yield cluster


def test_what_is_produced_is_fetched_byte_for_byte(cluster: LogCluster) -> None:
    table = cluster.create_table("bytes")
    for acks in (-1, 0, 1):
        answer = cluster.tablet.produce(table, 0, arrow_batch([acks, 7]), acks=acks)
        assert not answer.HasField("error_code")
        assert answer.base_offset == {-1: 0, 0: 2, 1: 4}[acks]
    found = cluster.tablet.fetch(table, 0, 0, min_bytes=1, max_wait_ms=5000)
    while len(ids_of(found.records)) < 6:  # acks 0 and 1 are answered before readers may see the rows
        found = cluster.tablet.fetch(table, 0, 0)
    assert not found.HasField("error_code")
    assert ids_of(found.records) == [-1, 7, 0, 7, 1, 7]
    headers = [header for _, header in iter_batches(found.records)]
    assert [header.base_offset for header in headers] == [0, 2, 4]
    assert all(header.commit_timestamp > 1_600_000_000_000 for header in headers)
    assert found.high_watermark == 6
    assert found.log_start_offset == 0
    # Apart from what the leader decides the bytes are those that were sent.
    assert found.records[21 : headers[0].size] == arrow_batch([-1, 7])[21:]


def test_reads_begin_with_the_batch_that_holds_the_offset(cluster: LogCluster) -> None:
    table = cluster.create_table("middle")
    cluster.tablet.produce(table, 0, arrow_batch(range(10)))
    cluster.tablet.produce(table, 0, arrow_batch(range(10, 20)))
    assert ids_of(cluster.tablet.fetch(table, 0, 15).records) == list(range(10, 20))
    assert ids_of(cluster.tablet.fetch(table, 0, -2).records) == list(range(20))
    at_end = cluster.tablet.fetch(table, 0, 20)
    assert at_end.HasField("records")
    assert at_end.records == b""
    assert at_end.high_watermark == 20
    for offset in (21, -3):
        assert cluster.tablet.fetch(table, 0, offset).error_code == ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION


def test_budgets_cut_by_bytes_but_never_the_first_batch(cluster: LogCluster) -> None:
    table = cluster.create_table("budgets", bucket_count=2)
    batch = arrow_batch(range(10), padding=100)
    for bucket in (0, 1):
        for _ in range(3):
            cluster.tablet.produce(table, bucket, batch)
    assert len(cluster.tablet.fetch(table, 0, 0, max_bytes=1).records) == len(batch)
    cut = cluster.tablet.fetch(table, 0, 0, max_bytes_for_bucket=len(batch) + 100)
    assert len(cut.records) == len(batch) + 100
    assert len(ids_of(cut.records)) == 10
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=len(batch) + 60)
    wanted = request.tables_req.add(table_id=table, projection_pushdown_enabled=False)
    for bucket in (0, 1):
        wanted.buckets_req.add(bucket_id=bucket, fetch_offset=0, max_fetch_bytes=len(batch))
    both = cluster.tablet.call(ApiKey.FETCH_LOG, request).tables_resp[0].buckets_resp
    assert [len(item.records) for item in both] == [len(batch), 60]
    request.max_bytes = len(batch) + 47
    both = cluster.tablet.call(ApiKey.FETCH_LOG, request).tables_resp[0].buckets_resp
    assert [len(item.records) for item in both] == [len(batch), 0]


def test_errors_are_per_bucket_and_leave_the_others_alone(cluster: LogCluster) -> None:
    table = cluster.create_table("errors", bucket_count=2)
    good, bad = arrow_batch([1]), bytearray(arrow_batch([2]))
    bad[-1] ^= 1
    request = pb.ProduceLogRequest(acks=-1, table_id=table, timeout_ms=10_000)
    for bucket, records in ((0, good), (1, bytes(bad)), (2, good)):
        request.buckets_req.add(bucket_id=bucket, records=records)
    results = cluster.tablet.call(ApiKey.PRODUCE_LOG, request).buckets_resp
    assert [item.error_code for item in results] == [0, 14, 21]
    assert [item.HasField("base_offset") for item in results] == [True, False, False]
    request.acks = 2
    results = cluster.tablet.call(ApiKey.PRODUCE_LOG, request).buckets_resp
    assert {item.error_code for item in results} == {ErrorCode.INVALID_REQUIRED_ACKS}
    assert cluster.tablet.produce(999_999, 0, good).error_code == 21
    assert cluster.tablet.produce(table, 0, good, partition_id=3).error_code == 21
    fetch = pb.FetchLogRequest(follower_server_id=-1, max_bytes=10_000, min_bytes=1, max_wait_ms=10_000)
    wanted = fetch.tables_req.add(table_id=table, projection_pushdown_enabled=False)
    for bucket in (0, 5):
        wanted.buckets_req.add(bucket_id=bucket, fetch_offset=0, max_fetch_bytes=1000)
    found = cluster.tablet.call(ApiKey.FETCH_LOG, fetch).tables_resp[0].buckets_resp
    assert ids_of(found[0].records) == [1]
    assert found[1].error_code == 21
    assert not found[1].HasField("records")


def test_a_follower_is_nobody(cluster: LogCluster) -> None:
    table = cluster.create_table("follower")
    request = pb.FetchLogRequest(follower_server_id=1, max_bytes=10)
    wanted = request.tables_req.add(table_id=table, projection_pushdown_enabled=False)
    wanted.buckets_req.add(bucket_id=0, fetch_offset=0, max_fetch_bytes=10)
    assert cluster.tablet.call(ApiKey.FETCH_LOG, request).tables_resp[0].buckets_resp[0].error_code == 12


def test_projection(cluster: LogCluster) -> None:
    table = cluster.create_table("projection")
    for start in (0, 5):
        cluster.tablet.produce(table, 0, arrow_batch(range(start, start + 5), padding=200))
    names = cluster.tablet.fetch(table, 0, 0, projected_fields=(1,))
    rows = ids_of(names.records, pa.schema([ARROW_SCHEMA.field("name")]))
    assert len(rows) == 10
    numbers = cluster.tablet.fetch(table, 0, 0, projected_fields=(0,))
    assert ids_of(numbers.records, pa.schema([ARROW_SCHEMA.field("id")])) == list(range(10))
    assert len(numbers.records) < 600
    assert read_header(numbers.records).record_count == 5
    # The budget counts projected bytes, and only whole batches come.
    one = cluster.tablet.fetch(table, 0, 0, projected_fields=(0,), max_bytes_for_bucket=len(numbers.records) - 1)
    assert len(one.records) == len(numbers.records) // 2
    for fields in ((), (1, 0), (0, 0), (2,), (-1,)):
        answer = cluster.tablet.fetch(table, 0, 0, projected_fields=fields, min_bytes=1, max_wait_ms=10_000)
        assert answer.error_code == ErrorCode.INVALID_COLUMN_PROJECTION, fields


def test_projection_after_a_column_was_added(cluster: LogCluster) -> None:
    table = cluster.create_table("evolving")
    cluster.tablet.produce(table, 0, arrow_batch([1]))
    assert cluster.tablet.fetch(table, 0, 0, projected_fields=(2,)).error_code == 34
    request = pb.AlterTableRequest(table_path=path_of("evolving"), ignore_if_not_exists=False)
    request.add_columns.add(column_name="extra", data_type_json=b'{"type":"INTEGER"}', column_position_type=0)
    cluster.coordinator.call(ApiKey.ALTER_TABLE, request)
    wide = arrow_rows([2]).append_column(pa.field("extra", pa.int32()), pa.array([22], pa.int32()))
    answer = cluster.tablet.produce(table, 0, encode_arrow_batch(wide, 2, NO_COMPRESSION))
    assert answer.base_offset == 1
    only_extra = pa.schema([wide.schema.field("extra")])
    assert ids_of(cluster.tablet.fetch(table, 0, 1, projected_fields=(2,)).records, only_extra) == [22]
    # A batch of the old schema lacks the column: that bucket fails, as it does on Apache Fluss.
    assert cluster.tablet.fetch(table, 0, 0, projected_fields=(2,)).error_code == 34
    both = cluster.tablet.fetch(table, 0, 0, projected_fields=(0,))
    assert ids_of(both.records, pa.schema([ARROW_SCHEMA.field("id")])) == [1, 2]


def filtered_request(table: int, offset: int, greater_than: int, **more: Any) -> pb.FetchLogRequest:
    """A fetch with the filter `id > greater_than`."""
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 20, **more)
    wanted = request.tables_req.add(table_id=table, projection_pushdown_enabled=False, filter_schema_id=1)
    wanted.filter_predicate.type = 0
    wanted.filter_predicate.leaf.function = 4
    wanted.filter_predicate.leaf.field_id = 0
    wanted.filter_predicate.leaf.literals.add(literal_type=3, is_null=False, int_value=greater_than)
    wanted.buckets_req.add(bucket_id=0, fetch_offset=offset, max_fetch_bytes=1 << 20)
    return request


def filtered_fetch(
    cluster: LogCluster, table: int, offset: int, greater_than: int, **more: Any
) -> pb.PbFetchLogRespForBucket:
    """The answer to a fetch with the filter `id > greater_than`."""
    request = filtered_request(table, offset, greater_than, **more)
    answer: pb.PbFetchLogRespForBucket = cluster.tablet.call(ApiKey.FETCH_LOG, request).tables_resp[0].buckets_resp[0]
    return answer


def test_filter_drops_whole_batches_and_tells_how_far(cluster: LogCluster) -> None:
    table = cluster.create_table("filter", {"table.statistics.columns": "*"})
    for start in (0, 10, 20, 30):
        batch = arrow_batch(range(start, start + 10), statistics_columns=(0, 1))
        assert not cluster.tablet.produce(table, 0, batch).HasField("error_code")
    found = filtered_fetch(cluster, table, 0, 24)
    assert ids_of(found.records) == list(range(20, 40))
    assert not found.HasField("filtered_end_offset")
    nothing = filtered_fetch(cluster, table, 0, 100)
    assert nothing.HasField("records")
    assert nothing.records == b""
    assert nothing.filtered_end_offset == 40
    with cluster.another_client() as reader:
        waiting = reader.send(ApiKey.FETCH_LOG, filtered_request(table, 40, 24, min_bytes=1, max_wait_ms=10_000))
        reader.api_versions()  # behind the fetch on the same connection: it is waiting now
        cluster.tablet.produce(table, 0, arrow_batch([0], statistics_columns=(0,)))
        nothing = reader.receive(waiting).tables_resp[0].buckets_resp[0]
    assert nothing.HasField("records")
    assert nothing.records == b""
    assert nothing.filtered_end_offset == 41
    # Batches without statistics cannot be judged and stay.
    cluster.tablet.produce(table, 0, arrow_batch([0]))
    assert ids_of(filtered_fetch(cluster, table, 40, 24).records) == [0]


def filtered_ids(client: WireClient, table: int, offset: int) -> list[int]:
    """What a connection gets with a filter that no row satisfies."""
    answer = client.call(ApiKey.FETCH_LOG, filtered_request(table, offset, 1000)).tables_resp[0].buckets_resp[0]
    return ids_of(answer.records)


def test_a_connection_that_asked_for_the_end_gets_the_batch_before_it(cluster: LogCluster) -> None:
    """A bounded read of pyfluss ends only when it sees a batch that reaches the offset it was told."""
    table = cluster.create_table("bounded", {"table.statistics.columns": "*"})
    for start in (0, 10, 20):
        cluster.tablet.produce(table, 0, arrow_batch(range(start, start + 10), statistics_columns=(0,)))
    with cluster.another_client() as bounded, cluster.another_client() as other:
        earliest = pb.ListOffsetsRequest(table_id=table, follower_server_id=-1, offset_type=0, bucket_id=[0])
        latest = pb.ListOffsetsRequest(table_id=table, follower_server_id=-1, offset_type=1, bucket_id=[0])
        other.call(ApiKey.LIST_OFFSETS, earliest)
        assert bounded.call(ApiKey.LIST_OFFSETS, latest).buckets_resp[0].offset == 30
        cluster.tablet.produce(table, 0, arrow_batch(range(30, 40), statistics_columns=(0,)))
        assert filtered_ids(bounded, table, 0) == list(range(20, 30))
        assert filtered_ids(bounded, table, -2) == list(range(20, 30)), "another read of the same connection"
        assert filtered_ids(bounded, table, 30) == []
        assert filtered_ids(other, table, 0) == []
        assert filtered_ids(other, table, 20) == []
    with cluster.another_client() as again:
        # It may go on with a bounded read whose connection was lost.
        assert filtered_ids(again, table, 10) == list(range(30, 40))


def test_filter_without_its_schema_fails_as_a_whole(cluster: LogCluster) -> None:
    table = cluster.create_table("filter_schema")
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=10)
    wanted = request.tables_req.add(table_id=table, projection_pushdown_enabled=False)
    wanted.filter_predicate.type = 0
    with pytest.raises(FlussError) as caught:
        cluster.tablet.call(ApiKey.FETCH_LOG, request)
    assert caught.value.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def limit_scan(cluster: LogCluster, table: int, limit: int, bucket: int = 0) -> pb.LimitScanResponse:
    answer: pb.LimitScanResponse = cluster.tablet.call(
        ApiKey.LIMIT_SCAN, pb.LimitScanRequest(table_id=table, bucket_id=bucket, limit=limit)
    )
    return answer


def test_limit_scan_returns_the_tail(cluster: LogCluster) -> None:
    table = cluster.create_table("tail")
    assert limit_scan(cluster, table, 5).records == b""
    for start in (0, 10, 20):
        cluster.tablet.produce(table, 0, arrow_batch(range(start, start + 10)))
    answer = limit_scan(cluster, table, 12)
    assert answer.is_log_table
    assert ids_of(answer.records) == list(range(10, 30))
    assert ids_of(limit_scan(cluster, table, 10).records) == list(range(20, 30))
    assert ids_of(limit_scan(cluster, table, 1000).records) == list(range(30))
    assert limit_scan(cluster, table, 1, bucket=1).error_code == 21
    assert limit_scan(cluster, table, 0).error_code == ErrorCode.INVALID_SCAN_REQUEST


def test_table_stats(cluster: LogCluster) -> None:
    table = cluster.create_table("stats", bucket_count=2)
    cluster.tablet.produce(table, 1, arrow_batch(range(7)))
    request = pb.GetTableStatsRequest(table_id=table)
    for bucket in (0, 1, 2):
        request.buckets_req.add(bucket_id=bucket)
    answer = cluster.tablet.call(ApiKey.GET_TABLE_STATS, request).buckets_resp
    assert [item.row_count for item in answer] == [0, 7, 0]
    assert answer[2].error_code == 21


def test_writers_are_idempotent(cluster: LogCluster) -> None:
    table = cluster.create_table("writers")
    request = pb.InitWriterRequest()
    request.table_path.add(database_name="fluss", table_name="writers")
    first = cluster.tablet.call(ApiKey.INIT_WRITER, request).writer_id
    second = cluster.tablet.call(ApiKey.INIT_WRITER, request).writer_id
    assert second == first + 1
    for sequence in range(3):
        batch = arrow_batch([sequence], writer_id=first, batch_sequence=sequence)
        assert cluster.tablet.produce(table, 0, batch).base_offset == sequence
    again = arrow_batch([1], writer_id=first, batch_sequence=1)
    repeated = cluster.tablet.produce(table, 0, again)
    assert not repeated.HasField("error_code")
    assert repeated.base_offset == 1
    gap = cluster.tablet.produce(table, 0, arrow_batch([9], writer_id=first, batch_sequence=9))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION
    assert ids_of(cluster.tablet.fetch(table, 0, 0).records) == [0, 1, 2]


def test_pipelined_writes_of_a_connection_keep_their_order(cluster: LogCluster) -> None:
    table = cluster.create_table("pipeline")
    sent = []
    for sequence in range(5):  # The bucket is still closed: the first requests wait for it, in order.
        request = pb.ProduceLogRequest(acks=-1, table_id=table, timeout_ms=10_000)
        records = arrow_batch([sequence], writer_id=700_000, batch_sequence=sequence)
        request.buckets_req.add(bucket_id=0, records=records)
        sent.append(cluster.tablet.send(ApiKey.PRODUCE_LOG, request))
    answers = [cluster.tablet.receive(request_id).buckets_resp[0] for request_id in sent]
    assert [answer.base_offset for answer in answers] == list(range(5))
    assert [answer.error_code for answer in answers] == [0] * 5


def test_several_batches_and_a_torn_end_in_one_write(cluster: LogCluster) -> None:
    table = cluster.create_table("several")
    records = arrow_batch([1, 2]) + empty_batch(1, append_only=True) + arrow_batch([3]) + b"torn"
    assert cluster.tablet.produce(table, 0, records).base_offset == 0
    found = cluster.tablet.fetch(table, 0, 0)
    assert found.high_watermark == 4
    assert ids_of(found.records) == [1, 2, 3]
    nothing = cluster.tablet.produce(table, 0, b"short")
    assert not nothing.HasField("error_code")
    assert cluster.latest(table) == 4


@pytest.mark.parametrize("log_format", ["INDEXED", "COMPACTED"])
def test_arrow_batches_for_row_formats_are_refused(cluster: LogCluster, log_format: str) -> None:
    table = cluster.create_table(f"rows_{log_format.lower()}", {"table.log.format": log_format})
    refused = cluster.tablet.produce(table, 0, arrow_batch([1]))
    assert refused.error_code == ErrorCode.INVALID_TABLE_EXCEPTION
    assert log_format in refused.error_message
    schema = Schema((Column("id", IntType()), Column("name", StringType())))
    rows = encode_row_batch(arrow_rows([-1, 2]), schema, RowFormat(log_format), 1)
    assert cluster.tablet.produce(table, 0, rows).base_offset == 0
    assert len(cluster.tablet.fetch(table, 0, 0).records) == len(rows)
    assert cluster.tablet.fetch(table, 0, 0, projected_fields=(0,)).error_code == 34


def test_primary_key_tables_are_not_written_by_appends(cluster: LogCluster) -> None:
    table = cluster.create_table("keyed", primary_key=["id"])
    assert cluster.tablet.produce(table, 0, arrow_batch([1])).error_code == ErrorCode.INVALID_TABLE_EXCEPTION
    assert cluster.tablet.fetch(table, 0, 0).records == b""


def test_partitions(cluster: LogCluster) -> None:
    table = cluster.create_table("parts", partition_key=["name"])
    assert cluster.tablet.produce(table, 0, arrow_batch([1])).error_code == 21
    request = pb.CreatePartitionRequest(table_path=path_of("parts"), ignore_if_not_exists=False)
    request.partition_spec.partition_key_values.add(key="name", value="eu")
    cluster.coordinator.call(ApiKey.CREATE_PARTITION, request)
    infos = cluster.coordinator.call(
        ApiKey.LIST_PARTITION_INFOS, pb.ListPartitionInfosRequest(table_path=path_of("parts"))
    )
    partition = infos.partitions_info[0].partition_id
    assert cluster.tablet.produce(table, 0, arrow_batch([5]), partition_id=partition).partition_id == partition
    found = cluster.tablet.fetch(table, 0, 0, partition_id=partition)
    assert found.partition_id == partition
    assert ids_of(found.records) == [5]
    directory = cluster.directory / "data" / "fluss" / f"parts-{table}" / f"eu-p{partition}" / "log-0"
    assert directory.is_dir()
