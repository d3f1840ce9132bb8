"""Batch reads: planning on the driver, Arrow batches from the tasks."""
