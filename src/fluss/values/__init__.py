"""The values that users pass in and get back: schemas, descriptors, buckets, offsets, permissions, filters. No I/O.

Each wraps or mirrors a class of `model` in the form of the public API. Imported by the client, `lake.reading`, `lake`,
`api`, `spark` and `cli`; not by the server. Start with `basic`.
"""
