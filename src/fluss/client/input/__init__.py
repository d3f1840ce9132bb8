"""What users give as Arrow data, frames or rows, brought into the columns of a table. Values are checked by
`fitting`.
"""
