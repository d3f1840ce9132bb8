"""Runnable examples, which tests run too. Start with `quickstart`."""
