"""Batch and streaming writes: planned and checked on the driver, done by tasks, committed by the driver."""
