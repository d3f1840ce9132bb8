"""The public API: the objects that a program gets from `fluss.FlussConnection` and `fluss.connect`.

`connection` -> `table` and `admin` -> writers (`client.write`), scanners (`base_scanner`), `lookup`; `blocking` is the
API for scripts. May import the client and `lake.reading`; nothing below imports this package. Start with `connection`.
"""
