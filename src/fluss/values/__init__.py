"""The values that users pass in and get back: schemas, descriptors, buckets, offsets, permissions, filters. No I/O.

Each wraps or mirrors a class of `model` in the form of the public API. Everything above `protocol` may import it. Start
with `basic`.
"""
