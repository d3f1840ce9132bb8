"""The interface of lake formats, and the documents with the progress of a table in the lake.

Imported by everything that works with lake tables: `lake`, the server and `spark`. Start with `format`.
"""
