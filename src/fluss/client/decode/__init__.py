"""From the bytes of a log to rows: batches, their schemas, Python values. No requests, except for schemas of tables.

Imported by `scan`, `keys`, `state` and `engine`, and by `api`. Start with `decoder`, which turns record bytes into
Arrow batches; `materialize` makes Python rows of them.
"""
