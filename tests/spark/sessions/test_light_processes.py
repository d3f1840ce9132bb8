"""Spark starts Python processes for every step of the first query, and the user waits while they load modules.

Arrow loads pandas, which takes half a second, as soon as it creates an array from Python values.
"""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa

from tests.support.spark.local_reads import Place
from tools.waiting import patience

PROGRAM = """
import sys
from fluss.spark.source import FlussDataSource
from pyspark.sql.types import BinaryType

def source(**more):
    return FlussDataSource({"bootstrap.servers": sys.argv[1], "path": sys.argv[2], **more})

schema = source().schema()
source().writer(schema, False)
stored = schema.fromJson(schema.jsonValue()).add("__stored_batch", BinaryType())
for reader in (source().reader(schema), source(__own_scan="stored").reader(stored)):
    print(sum(batch.num_rows > 0 for task in reader.partitions() for batch in reader.read(task)))
print("pandas" in sys.modules)
"""


def test_planning_and_reading_do_without_pandas(place: Place) -> None:
    path = place.create("t", pa.schema([("id", pa.int64()), ("name", pa.string())]), bucket_count=1)
    place.db.append(path, pa.table({"id": range(5_000), "name": [f"name {number}" for number in range(5_000)]}))
    arguments = [sys.executable, "-c", PROGRAM, place.target.bootstrap_servers, path]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=patience(120), check=False)
    assert done.stdout.split() == ["1", "1", "False"], done.stderr
