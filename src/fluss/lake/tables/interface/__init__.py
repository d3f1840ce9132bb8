"""What every lake format offers, and the documents that say how far a table is in the lake. Start with `format`."""
