"""Examples that run; tests run them too."""
