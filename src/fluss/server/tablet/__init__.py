"""The tablet role: stores the buckets of log and primary-key tables, and serves them to clients.

Imported by `process` only, which starts the role. Start with `service`, which assembles it.
"""
