"""The layout of a table in a lake, and access to it. pyiceberg is loaded at first use.

The only part of `lake` that the server may import; `lake` and `spark` import it as well. Start with `open_lake`, which
opens the lake of a table; `interface` is what a lake format has to offer.
"""
