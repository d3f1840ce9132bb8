"""Batches with a correct checksum and garbage inside are refused, and never keep readers from other batches."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from fluss.codec.batches.arrow_message import MESSAGE_PREFIX_BYTES, read_message
from fluss.codec.batches.log_batch import BatchHeader, encode_batch, read_header
from fluss.codec.crc import crc32c
from fluss.errors import ErrorCode
from tests.support.harness.tablet import TabletHarness
from tests.support.servers.log_cluster import arrow_batch, ids_of


def changed(batch: bytes, body: bytes | None = None, **fields: Any) -> bytes:
    """The batch with another body or other header fields, and with the correct checksum for them."""
    header = read_header(batch)
    body = batch[header.records_start :] if body is None else body
    values = {"record_count": header.record_count, "schema_id": header.schema_id, "append_only": header.append_only}
    return encode_batch([body], **{**values, **fields})


def with_number(batch: bytes, name: str, value: int, index: int = 0) -> bytes:
    """The batch with another number in its Arrow message."""
    header = read_header(batch)
    body = bytearray(batch[header.records_start :])
    message = read_message(body, 0, len(body))
    at = getattr(message, f"{name}_position") + MESSAGE_PREFIX_BYTES + 8 * index
    body[at : at + 8] = value.to_bytes(8, "little", signed=True)
    return changed(batch, bytes(body))


GOOD = arrow_batch([1, 2, 3])
GARBAGE = {
    "rows of another count": changed(GOOD, record_count=4),
    "many rows": changed(GOOD, record_count=1_000_000),
    "change types that are not there": changed(GOOD, append_only=False),
    "no message": changed(GOOD, bytes(40)),
    "an empty body": changed(GOOD, b""),
    "half of the metadata": changed(GOOD, GOOD[48:80]),
    "half of the body": changed(GOOD, GOOD[48:-20]),
    "row count of the message": with_number(GOOD, "row_count", 7),
    "negative rows": with_number(GOOD, "row_count", -3),
    "a longer body": with_number(GOOD, "body_length", 1 << 40),
    "a negative body": with_number(GOOD, "body_length", -8),
    "more nulls than rows": with_number(GOOD, "nodes", 99, 1),
    "negative nulls": with_number(GOOD, "nodes", -1, 1),
    "a buffer behind the end": with_number(GOOD, "buffers", 1 << 30, 2),
    "a long buffer": with_number(GOOD, "buffers", 1 << 30, 3),
    "a negative buffer": with_number(GOOD, "buffers", -8, 2),
}


@pytest.mark.parametrize("is_first", [True, False], ids=["walked", "compared"])
def test_garbage_is_refused_and_nothing_of_it_is_stored(tmp_path: Path, is_first: bool) -> None:
    """The first message of a schema is parsed, later ones are compared with it: both find the same errors."""

    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = tablet.create_table("t")
            expected: list[int] = []
            if not is_first:
                await tablet.produce(table, GOOD)
                expected = [1, 2, 3]
            for what, batch in GARBAGE.items():
                (answer,) = (await tablet.produce(table, batch)).buckets_resp
                assert answer.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION, what
                assert "was not stored" in answer.error_message
            for schema_id in (0, 2, 999, -1):
                batch = with_schema(GOOD, schema_id)
                (answer,) = (await tablet.produce(table, batch)).buckets_resp
                assert answer.error_code == ErrorCode.SCHEMA_NOT_EXIST
                assert f"schema id {schema_id}" in answer.error_message
            await tablet.produce(table, arrow_batch([4]))
            assert ids_of((await tablet.fetch(table)).records) == [*expected, 4]

    asyncio.run(scenario())


def with_schema(batch: bytes, schema_id: int) -> bytes:
    """`encode_batch` refuses negative ids, so the bytes are changed."""
    content = bytearray(batch)
    content[25:27] = schema_id.to_bytes(2, "little", signed=True)
    content[21:25] = crc32c(content, 25, len(content)).to_bytes(4, "little")
    return bytes(content)


def test_what_is_accepted_can_be_read(tmp_path: Path) -> None:
    """Whatever metadata bytes are changed, a batch is refused, or all numbers of its message are valid."""

    async def scenario() -> None:
        rng = random.Random(3)
        header = read_header(GOOD)
        size = read_message(GOOD, header.records_start, len(GOOD)).body_start - header.records_start
        refused = 0
        async with TabletHarness(tmp_path) as tablet:
            table = tablet.create_table("t")
            await tablet.produce(table, GOOD)
            for _ in range(300):
                body = bytearray(GOOD[header.records_start :])
                body[rng.randrange(size)] ^= 1 << rng.randrange(8)
                (answer,) = (await tablet.produce(table, changed(GOOD, bytes(body)))).buckets_resp
                if answer.HasField("error_code"):
                    refused += 1
                    continue
                message = read_message(body, 0, len(body))
                assert message.row_count == header.record_count
                assert max(message.buffers()) <= message.body_length
        assert refused > 200

    asyncio.run(scenario())


def test_batches_without_rows_and_with_change_types(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = tablet.create_table("t")
            body = GOOD[read_header(GOOD).records_start :]
            marked = changed(GOOD, bytes(3) + body, append_only=False)
            empty: BatchHeader = read_header(encode_batch((), 0, 1, append_only=True))
            assert empty.record_count == 0
            for batch in (GOOD, marked, encode_batch((), 0, 1, append_only=True), GOOD):
                (answer,) = (await tablet.produce(table, batch)).buckets_resp
                assert not answer.HasField("error_code"), answer.error_message

    asyncio.run(scenario())
