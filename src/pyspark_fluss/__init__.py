"""The package by which Spark finds the source `fluss`.

Spark imports every installed package whose name starts with `pyspark_`, and registers its `DefaultSource`. The import
is light: Arrow and the client are loaded when the source is used. Start with `fluss.spark.source`.
"""

from fluss.spark.source import FlussDataSource as DefaultSource

__all__ = ["DefaultSource"]
