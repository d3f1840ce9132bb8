"""The options of `format("fluss")`: declared in `directions`, read by `parsing`."""
