"""The bytes of keys, the bucket of a key, and the names of partitions. Start with `encoding`."""
