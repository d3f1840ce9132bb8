"""Handlers that coordinator and tablets share: metadata, permissions, snapshots. Start with `environment`, which holds
what all of them use.
"""
