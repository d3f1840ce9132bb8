"""The options of `format("fluss")`: declared in `applicability`, parsed by `parsing`.

Imported by all folders of `spark` except `java`, and by `cli`. Start with `parsing`.
"""
