"""Our Java classes for Spark, as sources that Spark compiles, and the search for the Java that Spark runs on.

Imported by `options`, `sessions`, `sql` and `source`. Start with `java_classes`; of the sources, with
`ColumnarReads.java` for reads, `ArrowWrites.java` for writes and `FlussCatalog.java` for SQL.
"""
