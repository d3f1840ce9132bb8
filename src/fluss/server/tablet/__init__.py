"""The tablet role: logs and primary-key tables served to clients.

Imported by `process` only, which starts the role. Start with `service`, which assembles it.
"""
