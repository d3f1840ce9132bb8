"""The tablet role: log buckets served to clients."""
