"""Connections, request dispatch and limits of a server process."""
