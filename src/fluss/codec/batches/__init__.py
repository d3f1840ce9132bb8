"""Batches as bytes: of logs, changelogs, puts, and answers with values.

Built on `arrow`, `rows` and `filters`; imported by the client, the server and `spark`. Start with `log_batch`.
"""
