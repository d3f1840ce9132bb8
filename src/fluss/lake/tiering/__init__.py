"""Tiering: rounds turn ranges of logs into files of the lake.

No Spark in here: engines run the splits, `local_runner` or `fluss.spark.lake`. Imported by `spark` and `cli`. Start
with `rounds` (one round of one table), then `service` (rounds of all tables).
"""
