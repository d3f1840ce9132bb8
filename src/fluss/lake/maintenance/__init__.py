"""Maintenance of lake tables: compacts small files, expires snapshots, removes files of dead rounds.

No Spark in here: runners execute the tasks (`task_runners`). Imported by `lake.tiering`, `spark` and `cli`. Start with
`service`.
"""
