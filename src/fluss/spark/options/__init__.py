"""The options of `format("fluss")`: declared in `applicability`, parsed by `parsing`."""
