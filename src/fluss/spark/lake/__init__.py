"""Tiering and maintenance of lake tables, run by Spark.

Imported by `fluss.spark` and `cli`. Start with `tiering`: it runs the splits of `lake.tiering` as Spark tasks.
"""
