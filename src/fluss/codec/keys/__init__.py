"""Keys as bytes, the bucket of a key, the names of partitions.

Built on `rows`; imported by the client, the server, the lake and `spark`. Start with `encoding`.
"""
