"""The columns of `table$lake$snapshots` and `table$lake$files`, which `read.lake_views` fills."""

from __future__ import annotations

from pyspark.sql import types as spark

VIEW_SCHEMAS: dict[str, spark.StructType] = {
    "snapshots": spark.StructType(
        [
            spark.StructField("snapshot_id", spark.LongType(), False),
            spark.StructField("committed_at", spark.TimestampType(), False),
            spark.StructField("superseded_at", spark.TimestampType(), True),
            spark.StructField("is_tiered", spark.BooleanType(), False),
            spark.StructField("properties", spark.MapType(spark.StringType(), spark.StringType(), False), False),
        ]
    ),
    "files": spark.StructType(
        [
            spark.StructField("path", spark.StringType(), False),
            spark.StructField("partition", spark.StringType(), True),
            spark.StructField("bucket", spark.IntegerType(), True),
            spark.StructField("rows", spark.LongType(), False),
            spark.StructField("deleted_rows", spark.LongType(), False),
            spark.StructField("delete_files", spark.IntegerType(), False),
            spark.StructField("size_bytes", spark.LongType(), False),
            spark.StructField("first_offset", spark.LongType(), True),
            spark.StructField("last_offset", spark.LongType(), True),
        ]
    ),
}
