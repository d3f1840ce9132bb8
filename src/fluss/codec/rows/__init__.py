"""Rows as bytes, COMPACTED, INDEXED and ALIGNED: one at a time, and column by column for many. Start with `columns`."""
