"""Encodes and decodes rows (COMPACTED, INDEXED, ALIGNED), one at a time or column by column. Start with `columns`."""
