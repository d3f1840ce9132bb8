"""The key-value side of a primary-key bucket: RocksDB, fed from the changelog.

Built on `storage.log`, imported by `tablet`. Start with `kv_bucket`, which puts the layers in their order; `store` is
the RocksDB database. docs/architecture.md draws the layers.
"""
