"""Writers: from `append(row)` and `upsert(row)` to batches, which `send` takes over.

`row_function` (checks a row) -> `row_buffer` (collects) -> `row_columns`, `routing` (batches by bucket) -> `send`.
Start with `base_writer`; docs/writing.md says what users see.
"""
