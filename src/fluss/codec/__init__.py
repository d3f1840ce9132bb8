"""Bytes to values and back, as pure functions: log batches, rows, keys, buckets. No sockets, files or clocks.

Imports `model` only; client, server, lake and Spark import it. The modules beside this one (`crc`, `buffers`) are for
all of its folders. Start with `batches.log_batch`: the batch that clients send and servers store.
"""
