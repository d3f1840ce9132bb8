"""The coordinator: everything that changes metadata, and the clock-driven work on it."""
