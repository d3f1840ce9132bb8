"""Tables for tests of scanners: made, filled through the public writer, and scanned, in plain calls without `await`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

import fluss
from tools.waiting import patience

WAIT_MS = int(patience(60_000))
ONE_BATCH_AT_A_TIME = {"scanner.log.fetch.max-bytes": "1", "scanner.log.fetch.max-bytes-for-bucket": "1"}
"""An answer to a fetch has one batch; with a `MAX_READY_BYTES` of 1 hardly anything is read ahead."""
ROWS = pa.schema([("id", pa.int32()), ("name", pa.string()), ("score", pa.float64())])


def rows_of(ids: Iterable[int]) -> Any:
    """Rows of the schema `ROWS`; names are null for multiples of seven."""
    numbers = list(ids)
    names = [None if number % 7 == 0 else f"name {number}" for number in numbers]
    columns = [pa.array(numbers, pa.int32()), pa.array(names, pa.string()), pa.array([n / 2 for n in numbers])]
    return pa.Table.from_arrays(columns, schema=ROWS)


class ScanTable:
    """A table of a test."""

    def __init__(
        self,
        connection: fluss.FlussConnection,
        name: str,
        schema: Any = ROWS,
        *,
        primary_keys: Sequence[str] | None = None,
        **descriptor: Any,
    ) -> None:
        self.connection = connection
        self.admin = connection.get_admin()
        self.path = fluss.TablePath("fluss", name)
        described = fluss.TableDescriptor(fluss.Schema(schema, primary_keys), **descriptor)
        asyncio.run(self.admin.create_table(self.path, described))
        self.reopen()

    def reopen(self) -> None:
        """Open the table again, e.g. after it was altered."""

        async def opened() -> fluss.FlussTable:
            return await self.connection.get_table(self.path)

        self.table = asyncio.run(opened())
        self.table_id = self.table.get_table_info().table_id

    def bucket(self, bucket_id: int, partition_id: int | None = None) -> fluss.TableBucket:
        """One of its buckets."""
        return fluss.TableBucket.with_partition(self.table_id, partition_id, bucket_id)

    def write(self, rows: Any) -> None:
        """Append an Arrow table, or a list of dicts; returns when it is acknowledged."""

        async def body() -> None:
            writer = self.table.new_append().create_writer()
            if isinstance(rows, list):
                for row in rows:
                    writer.append(row)
            else:
                writer.write_arrow(rows)
            await writer.flush()

        asyncio.run(body())

    def partition(self, spec: Mapping[str, str]) -> int:
        """Make a partition; returns its id."""

        async def body() -> int:
            await self.admin.create_partition(self.path, dict(spec))
            infos = await self.admin.list_partition_infos(self.path, dict(spec))
            return infos[0].partition_id

        return asyncio.run(body())

    def batches(self, scan: fluss.TableScan | None = None) -> fluss.LogScanner:
        """A scanner of Arrow batches."""
        return asyncio.run((scan or self.table.new_scan()).create_record_batch_log_scanner())

    def records(self, scan: fluss.TableScan | None = None) -> fluss.LogScanner:
        """A scanner of records."""
        return asyncio.run((scan or self.table.new_scan()).create_log_scanner())

    def read(self, scan: fluss.TableScan | None = None) -> Any:
        """All rows, from the start to now."""
        with self.batches(scan) as scanner:
            scanner.subscribe_all()
            return scanner.to_arrow()


def poll_ids(scanner: fluss.LogScanner, count: int, wait_ms: int = WAIT_MS) -> list[int]:
    """Poll until `count` rows are there; their ids in the order of arrival."""
    found: list[int] = []
    while len(found) < count:
        records = scanner.poll(wait_ms)
        assert not records.is_empty(), f"{len(found)} of {count} rows, then nothing for {wait_ms} ms"
        found += [record.row["id"] for record in records]
    return found
