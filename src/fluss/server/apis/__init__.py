"""Handlers and rules that coordinator and tablets share: metadata, permissions, snapshots.

Imported by `coordinator`, `tablet` and `process`. Start with `environment`, which holds what all handlers use.
"""
