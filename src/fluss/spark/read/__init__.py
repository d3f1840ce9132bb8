"""Batch reads: planned on the driver, read as Arrow batches by the tasks.

Imported by `stream` and `source`. Start with `batch_reader`, then `planner` (on the driver) and `log_reader` (in
a task).
"""
