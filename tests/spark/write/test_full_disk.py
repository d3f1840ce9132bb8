"""A server whose disk is really full refuses Spark's writes, and the job fails with the server's reason.

Needs the permission to mount (Linux, root), like `tests/recovery/test_full_disk.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import fluss
from fluss.server.storage.log.options import RESERVED_FREE_BYTES
from tests.recovery.test_full_disk import disk, fill
from tests.support.spark.stream_queries import ended
from tools.servers.server_process import ServerProcess

pytestmark = pytest.mark.all
__all__ = ["disk"]
REASON = r"make room .*\(error code 70\)"
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("text", pa.string())])
ROWS = 4_000


def rows(spark: SparkSession) -> DataFrame:
    """About four megabytes that do not compress."""
    text = "concat_ws('', transform(sequence(1, 16), n -> sha2(concat(id, ' ', n), 256))) AS text"
    return spark.range(0, ROWS, 1, 2).selectExpr("id", text)


def test_jobs_fail_with_the_reason_and_succeed_when_there_is_room(
    disk: Path, spark: SparkSession, tmp_path: Path
) -> None:
    with ServerProcess(disk / "server", tablets=1) as server, fluss.connect(server.address) as db:
        db.create_table("fluss.source", SCHEMA, bucket_count=1)
        db.create_table("fluss.log", SCHEMA, bucket_count=1)
        db.create_table("fluss.keys", SCHEMA, primary_keys=["id"], bucket_count=1)
        db.append("fluss.source", pa.table({"id": range(10), "text": ["x"] * 10}, schema=SCHEMA))
        options = {"bootstrap.servers": server.address}
        # Room remains for metadata, as servers reserve it, but not for rows.
        fill(disk / "filler", os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - RESERVED_FREE_BYTES // 2)

        def write(table: str) -> None:
            rows(spark).write.format("fluss").mode("append").options(**options).save(table)

        for table in ("fluss.log", "fluss.keys"):
            with pytest.raises(PySparkException, match=REASON):
                write(table)

        def copy() -> None:
            source = spark.readStream.format("fluss").options(**options).load("fluss.source")
            writer = source.writeStream.format("fluss").options(**options).option("table", "fluss.log")
            ended(writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start())

        with pytest.raises(StreamingQueryException, match=REASON):
            copy()
        fill(disk / "rest")
        with pytest.raises(PySparkException, match=r"\(error code 70\)"):
            write("fluss.keys")
        (disk / "rest").unlink()
        assert db.to_arrow("fluss.log").num_rows == 0
        assert db.to_arrow("fluss.keys").num_rows == 0

        (disk / "filler").unlink()
        for table in ("fluss.log", "fluss.keys"):
            write(table)
        copy()
        assert db.to_arrow("fluss.log").num_rows == ROWS + 10
        assert db.to_arrow("fluss.keys").num_rows == ROWS
