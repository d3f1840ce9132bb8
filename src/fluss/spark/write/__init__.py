"""Batch and streaming writes: planned and checked on the driver, done by tasks, committed by the driver.

Imported by `source` and by `fluss.spark`, for `foreach_batch`. Start with `delivery`: the ways in which rows are
written. Then read `plan` (on the driver) and `task`.
"""
