"""Writers: they turn `append(row)` and `upsert(row)` into batches, which `send` sends.

`row_function` (checks a row) -> `row_buffer` (collects rows) -> `row_layout`, `routing` (batches by bucket) -> `send`.
Imported by `keys` and `engine`, and by `api`. Start with `base_writer`; docs/writing.md has the users' view.
"""
