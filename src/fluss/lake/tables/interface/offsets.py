"""Bucket offsets as a document: up to which offset each bucket of a table is in the lake.

An offset is the next one to read from the log. The document has the format of Apache Fluss: a list per table or
partition, indexed by bucket, with -1 for a bucket without a known offset.

>>> dump_offsets(41, {TableBucket(41, None, 0): 120, TableBucket(41, None, 2): 77})
'{"version":1,"table_id":41,"bucket_offsets":[120,-1,77]}'
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fluss.errors import ErrorCode, FlussError
from fluss.model.formats import refuse_newer
from fluss.model.paths import TableBucket

if TYPE_CHECKING:
    from fluss.model.json_types import JsonObject

OFFSETS_VERSION = 1
UNKNOWN_OFFSET = -1
# A bucket id is an index of a list; a document with a higher one is damaged, not large.
MAX_BUCKET_ID = 1 << 20

Offsets = Mapping[TableBucket, int]


def dump_offsets(table_id: int, offsets: Offsets) -> str:
    """Return the document with these offsets; it has no lists if there are no offsets."""
    partitions: dict[int | None, dict[int, int]] = {}
    for bucket, offset in offsets.items():
        if bucket.table_id != table_id:
            raise FlussError(f"offsets of table {table_id} name bucket {bucket.bucket_id} of table {bucket.table_id}")
        partitions.setdefault(bucket.partition_id, {})[bucket.bucket_id] = offset
    if None in partitions and len(partitions) > 1:
        ids = sorted(partitions, key=str)
        raise FlussError(f"offsets of table {table_id} must either all have partitions or none, got partitions {ids}")
    document: JsonObject = {"version": OFFSETS_VERSION, "table_id": table_id}
    if None in partitions:
        document["bucket_offsets"] = _as_list(partitions[None])
    elif partitions:
        by_id = sorted((partition or 0, _as_list(buckets)) for partition, buckets in partitions.items())
        document["partition_offsets"] = [{"partition_id": each, "bucket_offsets": values} for each, values in by_id]
    return json.dumps(document, separators=(",", ":"))


def _as_list(buckets: Mapping[int, int]) -> list[int]:
    if not 0 <= min(buckets) <= max(buckets) <= MAX_BUCKET_ID:
        raise FlussError(f"bucket ids must be from 0 to {MAX_BUCKET_ID}, got {sorted(buckets)}")
    return [buckets.get(bucket, UNKNOWN_OFFSET) for bucket in range(max(buckets) + 1)]


def load_offsets(text: str | bytes) -> tuple[int, dict[TableBucket, int]]:
    """Parse table id and offsets of a document; the error for a damaged one describes the damage."""
    try:
        document = json.loads(text)
        refuse_newer("document with bucket offsets", document["version"], OFFSETS_VERSION, ErrorCode.CORRUPT_MESSAGE)
        if document["version"] != OFFSETS_VERSION:
            raise ValueError(f"the version must be {OFFSETS_VERSION}, got {document['version']!r}")
        table_id = _whole_number(document["table_id"])
        plain, partitioned = document.get("bucket_offsets"), document.get("partition_offsets")
        if plain is not None and partitioned is not None:
            raise ValueError("offsets with and without partitions")
        offsets = {} if plain is None else _from_list(table_id, None, plain)
        for entry in partitioned or ():
            offsets |= _from_list(table_id, _whole_number(entry["partition_id"]), entry["bucket_offsets"])
    except (ValueError, TypeError, KeyError) as error:
        raise FlussError(f"damaged bucket offsets: {error!r} in {text[:200]!r}", ErrorCode.CORRUPT_MESSAGE) from None
    return table_id, offsets


def _from_list(table_id: int, partition_id: int | None, values: list[object]) -> dict[TableBucket, int]:
    offsets = {TableBucket(table_id, partition_id, bucket): _whole_number(value) for bucket, value in enumerate(values)}
    return {bucket: offset for bucket, offset in offsets.items() if offset != UNKNOWN_OFFSET}


def _whole_number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < UNKNOWN_OFFSET:
        raise ValueError(f"{value!r} instead of a whole number")
    return value
