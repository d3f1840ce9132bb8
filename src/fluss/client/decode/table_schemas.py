"""Schemas of a table by id, from the coordinator. Runs on the I/O thread."""

from __future__ import annotations

import json
from collections.abc import Iterable

from fluss.client.decode.decoder import BatchDecoder
from fluss.client.net.cluster import Cluster
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TablePath
from fluss.model.schema import Schema, schema_from_json
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey


async def fetch_schema(cluster: Cluster, path: TablePath, schema_id: int) -> Schema:
    """The schema with this id; code 9 if the table never had it."""
    request = pb.GetTableSchemaRequest(schema_id=schema_id)
    request.table_path.database_name, request.table_path.table_name = path.database_name, path.table_name
    answer = await cluster.call_coordinator(ApiKey.GET_TABLE_SCHEMA, request, idempotent=True)
    try:
        return schema_from_json(json.loads(answer.schema_json))
    except ValueError as error:
        text = f"schema {schema_id} of table {path} cannot be read by this client: {error}"
        raise FlussError(text, ErrorCode.CORRUPT_MESSAGE) from None


async def learn_schemas(cluster: Cluster, decoder: BatchDecoder, schema_ids: Iterable[int]) -> None:
    """Fetch schemas that the decoder does not know yet. A nonexistent one is ignored: batches that name it are bad."""
    for schema_id in schema_ids:
        if decoder.knows(schema_id):
            continue
        try:
            decoder.learn(schema_id, await fetch_schema(cluster, decoder.table.path, schema_id))
        except FlussError as error:
            if error.error_code != ErrorCode.SCHEMA_NOT_EXIST:
                raise
