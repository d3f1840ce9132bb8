"""Roaring bitmaps as Java writes them, for the aggregation functions `rbm32` and `rbm64`. Start with `bitmap32`."""
