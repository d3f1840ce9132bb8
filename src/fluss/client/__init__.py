"""The client: how rows get to servers and back. Nothing in here is public; `fluss.api` and `fluss.values` are.

Lowest first: `net` (connections, metadata, the I/O thread), `calls` (one request, one answer), `fitting` and `input`
(data from users), `send` and `write`, `filter`, `decode` and `scan`, `keys` (lookups), `state` (primary-key tables as a
whole), `two_phase` (staged appends), `engine`. A folder imports only those before it.

`api` builds on all of them. `lake` and `spark` import `engine` and nothing else from here. Start with `net.session`,
then `write.base_writer` for writes or `scan.scanner_core` for reads.
"""
