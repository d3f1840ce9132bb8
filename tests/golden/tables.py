"""The tables of golden data and the rows of each run, for `write`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

import fluss
from fluss.lake.tiering.rounds import RoundReport
from tests.golden.contents import DATABASE
from tests.support.lake.tiered_tables import OPTIONS, tiering_service
from tests.support.spark.all_types import arrow_rows, table_schema
from tools.servers.server_process import COMMAND

KEPT = {"table.log.ttl": "0 s"}
PLAIN = pa.schema([pa.field("id", pa.int64(), False), ("text", pa.string())])
REGIONAL = pa.schema([pa.field("region", pa.string(), False), *PLAIN])
AGED = pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string()), ("age", pa.int32())])
LAKE = {"table.datalake.enabled": "true"}
REGIONS = ("asia", "europe")
BATCH_ROWS = 10


class Golden:
    """Tables of one server, by their plain names."""

    def __init__(self, db: fluss.Database) -> None:
        self.db = db

    def create(self, name: str, schema: Any, properties: dict[str, str] | None = None, **options: Any) -> None:
        options.setdefault("bucket_count", 1)
        self.db.create_table(f"{DATABASE}.{name}", schema, properties={**KEPT, **(properties or {})}, **options)

    def append(self, name: str, rows: Iterable[Any]) -> None:
        """Batches of a few rows each, so that there are segments and index entries."""
        rows = list(rows)
        for start in range(0, len(rows), BATCH_ROWS):
            self.db.append(f"{DATABASE}.{name}", rows[start : start + BATCH_ROWS])

    def upsert(self, name: str, rows: Iterable[Any], columns: list[str] | None = None) -> None:
        self.db.upsert(f"{DATABASE}.{name}", list(rows), columns)

    def delete(self, name: str, keys: Iterable[Any]) -> None:
        self.db.delete(f"{DATABASE}.{name}", list(keys))

    def tier(self, address: str) -> None:
        subprocess.run([*COMMAND, "tier", "--once", "--local", "--quiet", "--bootstrap", address], check=True)

    def tier_hiding(self) -> None:
        """The same for tables so large that few changed rows are hidden by position deletes, which these are not."""
        with tiering_service(self.db, replace(OPTIONS, position_deletes_from_bytes=0)) as service:
            for result in service.once():
                assert isinstance(result, RoundReport), result


def texts(first: int, after: int) -> list[dict[str, Any]]:
    return [{"id": number, "text": f"text of {number} " * (number % 5)} for number in range(first, after)]


def people(first: int, after: int, age: int = 0) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"name {number}", "age": number + age} for number in range(first, after)]


def in_regions(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"region": region, **row} for region in REGIONS for row in rows]


def create_log_tables(golden: Golden) -> None:
    golden.create("log_types", table_schema(keyed=False), bucket_count=2)
    for codec in ("zstd", "lz4_frame", "none"):
        golden.create(f"log_{codec}", PLAIN, {"table.log.arrow.compression.type": codec.upper()}, bucket_count=2)
    golden.create("log_remote", PLAIN, {"table.log.tiered.local-segments": "1"}, bucket_keys=["id"], bucket_count=2)
    golden.create("log_indexed", PLAIN, {"table.log.format": "INDEXED"})
    golden.create("log_compacted", PLAIN, {"table.log.format": "COMPACTED"})
    golden.create("log_statistics", PLAIN, {"table.statistics.columns": "*"})
    golden.create("log_evolved", PLAIN)
    golden.create("log_staged", PLAIN, bucket_count=2)
    golden.create("log_stream", PLAIN, bucket_count=2)
    golden.create("log_copied", PLAIN, bucket_count=2)
    golden.create("log_regions", REGIONAL, partition_keys=["region"], bucket_count=2)
    for region in REGIONS:
        golden.db.create_partition(f"{DATABASE}.log_regions", {"region": region})
    golden.create("log_years", REGIONAL, automatic_partitions(), partition_keys=["region"])


def automatic_partitions() -> dict[str, str]:
    """By year, and none is ever dropped."""
    prefix = "table.auto-partition"
    return {
        f"{prefix}.enabled": "true",
        f"{prefix}.time-unit": "YEAR",
        f"{prefix}.num-precreate": "2",
        f"{prefix}.num-retention": "-1",
    }


def create_key_tables(golden: Golden) -> None:
    golden.create("kv_types", table_schema(keyed=True))
    golden.create("kv_plain", AGED, primary_keys=["id"], bucket_count=3)
    golden.create("kv_indexed", AGED, {"table.kv.format": "INDEXED"}, primary_keys=["id"])
    golden.create("kv_wal", AGED, {"table.changelog.image": "WAL"}, primary_keys=["id"])
    golden.create("kv_first", AGED, {"table.merge-engine": "first_row"}, primary_keys=["id"])
    versioned = {"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "age"}
    golden.create("kv_versioned", AGED, versioned, primary_keys=["id"])
    golden.create("kv_aggregated", aggregated_schema(), {"table.merge-engine": "aggregation"})
    golden.create("kv_partial", AGED, primary_keys=["id"])
    golden.create("kv_numbered", numbered_schema(), bucket_count=2)
    golden.create("kv_evolved", AGED, primary_keys=["id"])
    golden.create("kv_regions", REGIONAL, primary_keys=["region", "id"], partition_keys=["region"], bucket_count=2)
    for region in REGIONS:
        golden.db.create_partition(f"{DATABASE}.kv_regions", {"region": region})
    golden.create(
        "kv_years", REGIONAL, automatic_partitions(), primary_keys=["region", "id"], partition_keys=["region"]
    )


def aggregated_schema() -> fluss.Schema:
    return (
        fluss.Schema.builder()
        .column("shop", fluss.DataTypes.string())
        .column("total", fluss.DataTypes.bigint()).with_aggregation("sum")
        .column("most", fluss.DataTypes.double()).with_aggregation("max")
        .column("buyers", fluss.DataTypes.string()).with_aggregation("listagg", delimiter=";")
        .primary_key("shop")
        .build()
    )  # fmt: skip


def numbered_schema() -> fluss.Schema:
    builder = fluss.Schema.builder().column("name", fluss.DataTypes.string()).column("number", fluss.DataTypes.bigint())
    return builder.primary_key("name").enable_auto_increment("number").build()


def create_lake_tables(golden: Golden) -> None:
    golden.create("lake_log", PLAIN, LAKE, bucket_count=2)
    golden.create("lake_keys", AGED, LAKE, primary_keys=["id"], bucket_count=2)
    golden.create("lake_hidden", AGED, LAKE, primary_keys=["id"])
    golden.create("lake_regions", REGIONAL, LAKE, primary_keys=["region", "id"], partition_keys=["region"])
    for region in REGIONS:
        golden.db.create_partition(f"{DATABASE}.lake_regions", {"region": region})


def years(golden: Golden, name: str) -> list[str]:
    return sorted(partition.partition_name for partition in golden.db.partitions(f"{DATABASE}.{name}"))


def write_rows(golden: Golden, address: str, run: int) -> None:
    """The rows of a run; those of the second one change and go on with the first one's."""
    first, after = run * 40, run * 40 + 40
    golden.db.append(f"{DATABASE}.log_types", arrow_rows())
    for name in ("zstd", "lz4_frame", "none", "indexed", "compacted", "statistics"):
        golden.append(f"log_{name}", texts(first, after))
    golden.append("log_remote", texts(run * 600, run * 600 + 600))
    golden.append("log_stream", texts(first, after))
    golden.append("log_regions", in_regions(texts(first, after)))
    golden.append("log_years", [{"region": year, **row} for year in years(golden, "log_years") for row in texts(0, 5)])
    golden.append("log_evolved", [{**row, **({"more": run * 1.5} if run else {})} for row in texts(first, after)])

    golden.db.upsert(f"{DATABASE}.kv_types", arrow_rows())
    for name in ("plain", "indexed", "wal"):
        golden.upsert(f"kv_{name}", people(run * 20, run * 20 + 40, age=run))
        golden.delete(f"kv_{name}", [(run * 20 + 5,), (run * 20 + 35,)])
    golden.upsert("kv_first", people(first, after) + people(run * 20, run * 20 + 40, age=100))
    golden.upsert("kv_versioned", people(0, 20, age=10) + people(0, 10, age=9) + people(10, 20, age=11 + run))
    golden.upsert(
        "kv_aggregated",
        [{"shop": f"s{n % 4}", "total": n, "most": n / 2, "buyers": f"b{n}"} for n in range(run * 9, run * 9 + 9)],
    )
    golden.upsert("kv_partial", people(run * 20, run * 20 + 20))
    golden.upsert("kv_partial", [(number, -number) for number in range(run * 10, run * 10 + 20)], ["id", "age"])
    golden.upsert("kv_numbered", [{"name": f"n{number}"} for number in range(first, after)], ["name"])
    golden.upsert("kv_evolved", [{**row, **({"more": run * 1.5} if run else {})} for row in people(first // 2, after)])
    golden.upsert("kv_regions", in_regions(texts(run * 20, after)))
    golden.delete("kv_regions", [("asia", after - 1), ("europe", after - 2)])
    golden.upsert("kv_years", [{"region": year, **row} for year in years(golden, "kv_years") for row in texts(0, 5)])

    rounds = range(2) if run == 0 else range(2, 3)  # two rounds of tiering, so that the second one deletes rows
    for each in rounds:
        golden.append("lake_log", texts(each * 30, each * 30 + 30))
        golden.upsert("lake_keys", people(each * 20, each * 20 + 30, age=each))
        golden.delete("lake_keys", [(each * 20 + 7,)])
        golden.upsert("lake_regions", in_regions(texts(each * 5, each * 5 + 10)))
        golden.upsert("lake_hidden", people(0, 5 if each else 100, age=each))
        golden.delete("lake_hidden", [(each + 50,)])
        if run == 0:
            golden.tier_hiding() if each else golden.tier(address)
