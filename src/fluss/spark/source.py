"""`format("fluss")`: the class that Spark calls. The builders of `read`, `stream` and `write` do the work.

Spark creates a `FlussDataSource` in a separate Python process for each step (schema, planning, commit) and in every
task; the object holds only the options as Spark passed them, so that it can be pickled and its import is light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from fluss.lazy_imports import import_lock

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from fluss.spark.options.applicability import Direction
    from fluss.spark.options.parsing import FlussOptions


class FlussDataSource(DataSource):
    """Tables of a cluster, by name::

    spark.read.format("fluss").option("bootstrap.servers", "localhost:9123").load("shop.orders")
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "fluss"

    def schema(self) -> StructType:
        """The columns of the table or of the option `columns`, with the columns about changes if the mode has them.

        This is the first request of a program, so it waits for a server that is just restarting.
        """
        with import_lock:
            from fluss.spark.convert.types import source_schema
            from fluss.spark.sessions.connection_cache import open_table
            from fluss.spark.sessions.outage_retries import patiently, start_patience_seconds

        options = self._parsed(None)

        def found() -> StructType:
            with open_table(options) as opened:
                return source_schema(opened.info, options)

        return patiently(found, start_patience_seconds(options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Build a batch read, or a count of its rows if our Java classes report that Spark needs nothing else."""
        with import_lock:
            from fluss.spark.java.java_classes import COUNT_SCAN, OWN_SCAN_OPTION, STORED_SCAN
            from fluss.spark.read.batch_reader import build_reader
            from fluss.spark.read.count_reader import build_count_reader

        options = self._parsed("batch reads")
        kind = self.options.get(OWN_SCAN_OPTION)
        if kind == COUNT_SCAN:
            return build_count_reader(options, schema)
        return build_reader(options, schema, takes_stored=kind == STORED_SCAN)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Build the reader of a streaming query."""
        with import_lock:
            from fluss.spark.stream.stream_reader import build_stream_reader

        return build_stream_reader(self._parsed("streaming reads"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Build the writer of a batch job."""
        with import_lock:
            from fluss.spark.write.batch_writer import build_writer

        return build_writer(self._parsed("batch writes"), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Build the writer of a micro-batch."""
        with import_lock:
            from fluss.spark.write.stream_writer import build_stream_writer

        return build_stream_writer(self._parsed("streaming writes"), schema, overwrite)

    def _parsed(self, direction: Direction | None) -> FlussOptions:
        with import_lock:
            from fluss.spark.options.parsing import parse_options

        return parse_options(self.options, direction)
