"""Arrow in the codecs: types, conversions, nulls, compression of buffers. Start with `types`."""
