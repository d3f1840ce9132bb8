"""The interface of lake formats, and the documents with the progress of a table in the lake. Start with `format`."""
