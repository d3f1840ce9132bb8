"""Offsets that exactly-once sinks store on the coordinator.

An entry is stored in the catalog under the producer's id until it expires. Registering never replaces an entry that has
not expired, because a sink that restarts must get the offsets from its first start. There is a limit per entry and for
all entries together, because all processes share the catalog.
"""

from __future__ import annotations

import json

from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import dump_json
from fluss.model.names import check_producer_id
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.apis.authorizer import table_resource
from fluss.server.apis.environment import Environment
from fluss.server.runtime.handlers import RequestContext

CREATED, ALREADY_EXISTS = 0, 1
# Limits of the stored documents, which have about twenty bytes per bucket.
MAX_ENTRY_BYTES = 1024 * 1024
MAX_TOTAL_BYTES = 256 * 1024 * 1024
LONGEST_OFFSETS_MS = 30 * 86_400_000


def longest_offsets_ms(default_ms: int) -> int:
    """The longest time for which an entry is kept, with `default_ms` for clients that ask for none."""
    return max(default_ms, LONGEST_OFFSETS_MS)


class ProducerOffsetApis:
    """Handlers for REGISTER, GET and DELETE of producer offsets."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._records = environment.catalog.store.producer_offsets

    def register_producer_offsets(
        self, context: RequestContext, request: pb.RegisterProducerOffsetsRequest
    ) -> pb.RegisterProducerOffsetsResponse:
        self._begin(request.producer_id)
        authorizer = self._environment.authorizer
        for table in request.table_offsets:
            authorizer.check_table_id(context, table.table_id)
        if not request.table_offsets:
            authorizer.check_any(context)
        now_ms = self._environment.clock()
        if self._records.get(request.producer_id, now_ms) is not None:
            return pb.RegisterProducerOffsetsResponse(result=ALREADY_EXISTS)
        default_ms = self._environment.config.producer_offsets_ttl_ms
        ttl_ms = min(request.ttl_ms, longest_offsets_ms(default_ms)) if request.HasField("ttl_ms") else default_ms
        document = dump_json(_to_json(request)).decode()
        self._check_room(request.producer_id, len(document))
        self._records.put(request.producer_id, document, now_ms + ttl_ms, now_ms)
        return pb.RegisterProducerOffsetsResponse(result=CREATED)

    def get_producer_offsets(
        self, context: RequestContext, request: pb.GetProducerOffsetsRequest
    ) -> pb.GetProducerOffsetsResponse:
        """Return the offsets of a producer, without tables that the caller may not read."""
        self._begin(request.producer_id)
        found = self._records.get(request.producer_id, self._environment.clock())
        if found is None:
            return pb.GetProducerOffsetsResponse()
        document, expiration_time = found
        response = pb.GetProducerOffsetsResponse(producer_id=request.producer_id, expiration_time=expiration_time)
        for table_id, offsets in json.loads(document):
            if not self._may_read(context, table_id):
                continue
            table = response.table_offsets.add(table_id=table_id)
            for partition_id, bucket_id, offset in offsets:
                table.bucket_offsets.add(partition_id=partition_id, bucket_id=bucket_id, log_end_offset=offset)
        return response

    def delete_producer_offsets(
        self, context: RequestContext, request: pb.DeleteProducerOffsetsRequest
    ) -> pb.DeleteProducerOffsetsResponse:
        """Delete an entry; succeeds if there is none."""
        self._begin(request.producer_id)
        found = self._records.get(request.producer_id, self._environment.clock())
        if found is not None:
            for table_id, _ in json.loads(found[0]):
                if self._environment.catalog.table_by_id(table_id) is not None:
                    self._environment.authorizer.check_table_id(context, table_id)
            self._records.delete(request.producer_id)
        return pb.DeleteProducerOffsetsResponse()

    def _check_room(self, producer_id: str, size: int) -> None:
        if size > MAX_ENTRY_BYTES:
            raise FlussError(
                f"the offsets of producer {producer_id!r} take {size} bytes, more than the limit of "
                f"{MAX_ENTRY_BYTES}; register fewer buckets under one id",
                ErrorCode.RECORD_TOO_LARGE_EXCEPTION,
            )
        stored = self._records.total_bytes()
        if stored + size > MAX_TOTAL_BYTES:
            raise FlussError(
                f"producer offsets already take {stored} bytes of at most {MAX_TOTAL_BYTES}; delete some, or wait "
                "until they expire",
                ErrorCode.STORAGE_EXCEPTION,
            )

    def _begin(self, producer_id: str) -> None:
        self._environment.catalog.refresh()
        check_producer_id(producer_id)

    def _may_read(self, context: RequestContext, table_id: int) -> bool:
        if not self._environment.authorizer.enabled:
            return True
        entry = self._environment.catalog.table_by_id(table_id)
        return entry is not None and self._environment.authorizer.permits(context, table_resource(entry.path))


def _to_json(request: pb.RegisterProducerOffsetsRequest) -> list[object]:
    return [
        [
            table.table_id,
            [
                [
                    bucket.partition_id if bucket.HasField("partition_id") else None,
                    bucket.bucket_id,
                    bucket.log_end_offset if bucket.HasField("log_end_offset") else None,
                ]
                for bucket in table.bucket_offsets
            ],
        ]
        for table in request.table_offsets
    ]
