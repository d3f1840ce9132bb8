"""Streaming reads: `spark.readStream.format("fluss")`.

Imported by `source`. Start with `stream_reader`, then `planner` (on the driver) and `task_read` (in a task).
"""
