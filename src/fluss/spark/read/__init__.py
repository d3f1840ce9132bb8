"""Batch reads: planned on the driver, read as Arrow batches by the tasks."""
