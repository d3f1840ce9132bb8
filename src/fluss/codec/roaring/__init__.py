"""Roaring bitmaps as Java writes them, for the aggregation functions `rbm32` and `rbm64`.

Imported by `server.tablet.kv.merge`. Start with `bitmap32`; `containers` has the sets that bitmaps consist of.
"""
