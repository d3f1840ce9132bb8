"""What Spark looks for: it imports every package whose name starts with `pyspark_` and registers `DefaultSource`.

The import is light: Arrow and the client are loaded when the source is used.
"""

from fluss.spark.source import FlussDataSource as DefaultSource

__all__ = ["DefaultSource"]
