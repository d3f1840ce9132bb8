"""Arrow's side of the codecs: types, conversions, nulls, compression of buffers."""
