"""The Fluss wire protocol: messages, API keys, frames, and record bytes outside of messages. No sockets.

Imports `model` only; imported by `values`, the client, the server, `api`, `lake` and `spark`. Start with `api_keys`:
all requests with their messages. `python -m tools.generate_protocol` makes the `_pb2` modules.
"""
