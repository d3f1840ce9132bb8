"""Bytes to values and back, as pure functions: log batches, rows, keys, buckets. No sockets, files or clocks.

Every layer above may import it; it imports only `model`. Start with `batches.log_batch` and `rows.columns`.
"""
