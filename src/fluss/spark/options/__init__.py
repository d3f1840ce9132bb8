"""The options of `format("fluss")`: declared in `directions`, parsed by `parsing`."""
