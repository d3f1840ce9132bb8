"""The server: coordinator and tablets on one machine."""
