"""Arrow data, data frames and rows of users, converted to the columns of a table. `fitting` checks their values.

Imported by `write`, `keys` and `engine`, and by `api`. Start with `arrow_input`; `row_columns` converts rows.
"""
