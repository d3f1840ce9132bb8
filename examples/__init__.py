"""Runnable examples; tests run them too."""
