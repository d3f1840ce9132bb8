"""Examples that run; `python3 dev.py demo` runs them."""
