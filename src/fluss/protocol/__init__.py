"""The Fluss wire protocol: messages, API keys, frames, and walks that keep record bytes out of messages. No sockets."""
