"""The Fluss wire protocol: messages, API keys, frames, and record bytes kept outside of messages. No sockets.

Every layer above may import this package, which imports only `model`. Start with `frames` and `api_keys`.
"""
