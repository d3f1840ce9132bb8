"""Keys as bytes, the bucket of a key, the names of partitions. Start with `encoding`."""
