"""The reader of a streaming query, called as Spark calls it but without Spark: fast, and every step can be checked.

Offsets go through JSON and the reader of the tasks through pickle, as they do in Spark.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

import fluss
from fluss.spark.source import FlussDataSource
from fluss.spark.stream.tasks import StreamTask
from tests.support.servers.targets import Target
from tools.waiting import DEADLINE_SECONDS, wait_until

Row = tuple[Any, ...]
Offset = dict[str, Any]
ID_AND_TEXT = pa.schema([("id", pa.int64()), ("text", pa.string())])


class ReaderCalls:
    """One query: `next_rows` is a micro-batch."""

    def __init__(
        self, options: Mapping[str, str], schema: StructType | None = None, start: Offset | None = None
    ) -> None:
        source = FlussDataSource({key.lower(): value for key, value in options.items()})
        self.schema = schema or source.schema()
        assert isinstance(self.schema, StructType)
        self.reader: DataSourceStreamReader = source.streamReader(self.schema)
        self._in_tasks = pickle.dumps(source.streamReader(self.schema))
        self.offset = _json(start) if start is not None else {}

    def begin(self) -> Offset:
        """The initial offset."""
        self.offset = _json(self.reader.initialOffset())
        return self.offset

    def available_now(self) -> None:
        """The target of an AvailableNow run."""
        self.reader.prepareForTriggerAvailableNow()  # type: ignore[attr-defined]

    def next_end(self) -> Offset:
        """The end of the next batch."""
        if not self.offset:
            self.begin()
        limit = self.reader.getDefaultReadLimit()
        return _json(self.reader.latestOffset(self.offset, limit))

    def tasks(self, start: Offset, end: Offset) -> list[StreamTask]:
        """The tasks of a batch."""
        planned = self.reader.partitions(_json(start), _json(end))
        return [pickle.loads(pickle.dumps(task)) for task in planned]

    def rows(self, start: Offset, end: Offset) -> list[Row]:
        """All rows of a batch, task by task."""
        found: list[Row] = []
        for task in self.tasks(start, end):
            in_task = pickle.loads(self._in_tasks)
            for batch in in_task.read(task):
                found += [tuple(row.values()) for row in batch.to_pylist()]
        return found

    def next_rows(self) -> list[Row]:
        """One micro-batch."""
        end = self.next_end()
        start, self.offset = self.offset, end
        return self.rows(start, end) if json.dumps(start) != json.dumps(end) else []

    def batches(self, most: int = 1000) -> Iterator[list[Row]]:
        """Micro-batches until there are no new rows."""
        for _ in range(most):
            before = self.offset
            rows = self.next_rows()
            if json.dumps(before) == json.dumps(self.offset):
                return
            yield rows
        raise AssertionError(f"more than {most} batches")

    def all_rows(self) -> list[Row]:
        """The rows of all batches until there are no new ones."""
        return [row for batch in self.batches() for row in batch]

    def rows_within(self, count: int, deadline_seconds: float = DEADLINE_SECONDS) -> list[Row]:
        """The rows of all batches until there are this many; new partitions are only found after a moment."""
        found: list[Row] = []

        def arrived() -> bool:
            found.extend(self.next_rows())
            return len(found) >= count

        wait_until(arrived, f"{count} rows", deadline_seconds)
        return found

    def close(self) -> None:
        """Stop the reader, as Spark should but seldom does."""
        self.reader.stop()

    def report(self) -> Offset:
        """The offsets for the progress report."""
        found = self.reader.reportLatestOffset()
        assert found is not None
        return _json(found)


def _json(value: Offset) -> Offset:
    return dict(json.loads(json.dumps(value)))


@dataclass(frozen=True)
class ReaderTables:
    """Tables of a test and readers over them."""

    target: Target
    db: fluss.Database
    name: str

    def path(self, table: str = "t") -> str:
        """`database.table`."""
        return f"{self.name}.{table}"

    def create(self, schema: pa.Schema | fluss.Schema = ID_AND_TEXT, table: str = "t", **options: Any) -> str:
        """Create a table, by default of `(id, text)` with three buckets."""
        options = {"bucket_count": 3, "bucket_keys": ["id"], **options}
        self.db.create_table(self.path(table), schema, **options)
        return self.path(table)

    def append(self, first: int, count: int, table: str = "t", **more: Any) -> None:
        """Append rows with these ids."""
        rows = [{"id": number, "text": f"row {number}", **more} for number in range(first, first + count)]
        self.db.append(self.path(table), rows)

    def upsert(self, ids: Iterable[int], text: str, table: str = "t", **more: Any) -> None:
        """Upsert rows of a primary-key table, all with this text."""
        self.db.upsert(self.path(table), [{"id": number, "text": text, **more} for number in ids])

    def delete(self, ids: Iterable[int], table: str = "t") -> None:
        """Delete rows by key."""
        self.db.delete(self.path(table), [{"id": number} for number in ids])

    def reading(
        self,
        options: Mapping[str, Any] | None = None,
        *,
        table: str = "t",
        schema: StructType | None = None,
        start: Offset | None = None,
    ) -> AbstractContextManager[ReaderCalls]:
        """A query's reader over a table; `start` is the offset of a checkpoint."""
        given = {key: str(value) for key, value in (options or {}).items()}
        address = {"bootstrap.servers": self.target.bootstrap_servers, "table": self.path(table)}
        return contextlib.closing(ReaderCalls({**address, **given}, schema, start))


def new_database(target: Target) -> Iterator[ReaderTables]:
    """A new database for a test; for fixtures."""
    name = f"db_{uuid.uuid4().hex[:12]}"
    with fluss.connect(target.config(), database=name) as db:
        db.create_database(name)
        yield ReaderTables(target, db, name)
