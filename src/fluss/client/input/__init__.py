"""Arrow data, data frames and rows of users, converted to the columns of a table. Values are checked by
`fitting`.
"""
