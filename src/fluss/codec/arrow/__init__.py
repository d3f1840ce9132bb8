"""Arrow's side of the codecs: types, conversions, nulls, compression of buffers.

The lowest folder of `codec`: `rows` and `batches` import it, and so do the client, the server, the lake and
`spark`. Start with `types`.
"""
