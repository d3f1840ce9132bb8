"""Servers that listen on sockets. Start with `targets`; those that a test may disturb are in `restartable`."""
