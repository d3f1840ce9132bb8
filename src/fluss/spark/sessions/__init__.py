"""Spark sessions and the connections that their processes share."""
