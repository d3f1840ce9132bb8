"""Bytes to values and back, as pure functions: log batches, rows, keys, buckets. No sockets, files or clocks."""
