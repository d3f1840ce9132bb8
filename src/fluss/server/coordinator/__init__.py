"""The coordinator role: all changes of metadata, on request and on schedule.

Imported by `process` only, which starts the role. Start with `service`, which assembles it.
"""
