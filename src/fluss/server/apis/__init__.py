"""Handlers that coordinator and tablets share, and what they work with (`environment`): metadata, permissions,
snapshots.
"""
