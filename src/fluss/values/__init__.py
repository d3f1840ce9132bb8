"""The values that users pass in and get back: schemas, descriptors, buckets, offsets, permissions, filters. No I/O.

Each class wraps or mirrors one of `model` in the form of the public API. Every layer above `protocol` except the server
may import this package. Start with `basic`.
"""
