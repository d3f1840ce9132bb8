"""From the bytes of a log to rows: batches, their schemas, Python values. No requests, except for schemas of tables."""
