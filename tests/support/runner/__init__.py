"""Plug-ins of pytest: `tests/conftest.py` loads them all. Start with `lanes`, which decides what runs when."""
