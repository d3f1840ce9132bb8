"""Rows as bytes, COMPACTED, INDEXED and ALIGNED: one at a time, and column by column for many.

Built on `arrow`; imported by `keys`, `batches`, the client, the server and `spark`. Start with `columns`.
"""
