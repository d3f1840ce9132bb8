"""The public API: the objects that a program gets from `fluss.FlussConnection` and `fluss.connect`.

A connection makes tables (`table`) and admins (`admin`); a table makes writers (`client.write`), scanners
(`log_scanner`) and lookupers (`lookup`). `blocking` is the API for scripts. Built on the client and `lake.reading`;
imported by `lake`, `spark` and `cli`. Start with `connection`.
"""
