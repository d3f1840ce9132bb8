"""The key-value side of a primary-key bucket: RocksDB, fed from the changelog."""
