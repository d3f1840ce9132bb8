"""How a put changes the rows of a bucket: merge engines, partial updates, aggregation.

Imported by `tablet.kv`. Start with `engines`; `put_batch` has the general form of a merge, and `whole_rows` and
`columns` the fast ones.
"""
