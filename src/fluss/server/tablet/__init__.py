"""The tablet role: stores the buckets of log and primary-key tables and serves them. Start with `service`."""
