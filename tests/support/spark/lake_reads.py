"""Tables with a lake for tests of Spark's reads: their own server, and readers over them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

import fluss
from tests.support.lake.tiered_tables import LakeTable, Rows, by_id
from tests.support.lake.union_reads import SERVER
from tests.support.servers.targets import Target
from tests.support.spark.local_reads import Reading, plan_count, plan_read
from tests.support.spark.reader_calls import Offset, ReaderCalls


@contextlib.contextmanager
def lake_server(directory: Path) -> Iterator[fluss.Database]:
    """A server with small segments, which expire quickly if a table is configured so."""
    with (
        fluss.embedded(directory / "data", config=SERVER) as cluster,
        fluss.connect(cluster.bootstrap_servers) as db,
    ):
        yield db


def address(table: LakeTable) -> str:
    return table.db.connection.config.bootstrap_servers


def target_of(table: LakeTable) -> Target:
    return Target("embedded", address(table), address(table), 1)


def planned_read(
    table: LakeTable, suffix: str = "", *, filters: Sequence[Filter] = (), own_scan: bool = True, **options: Any
) -> Reading:
    """Plan a read as Spark does, in this process."""
    return plan_read(target_of(table), table.name + suffix, filters=filters, own_scan=own_scan, **options)


def planned_count(table: LakeTable, suffix: str = "", **options: Any) -> Reading:
    """Plan a count of all rows as Spark does."""
    return plan_count(target_of(table), table.name + suffix, **options)


def read(table: LakeTable, suffix: str = "", **options: Any) -> Rows:
    """Read all rows, sorted."""
    return by_id(planned_read(table, suffix, **options).rows())


def streaming(
    table: LakeTable, *, start: Offset | None = None, schema: StructType | None = None, **options: Any
) -> AbstractContextManager[ReaderCalls]:
    """The reader of a query, call by call; `start` is the offset of a checkpoint."""
    given = {key: str(value) for key, value in options.items()}
    calls = ReaderCalls({"bootstrap.servers": address(table), "table": table.name, **given}, schema, start)
    return contextlib.closing(calls)
