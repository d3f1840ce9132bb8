"""The Fluss wire protocol: messages, API keys, frames, and record bytes outside of messages. No sockets."""
