"""Writers: they turn `append(row)` and `upsert(row)` into batches, which `send` sends.

`row_function` (checks a row) -> `row_buffer` (collects) -> `row_columns`, `routing` (batches by bucket) -> `send`.
Start with `base_writer`; docs/writing.md has the users' view.
"""
