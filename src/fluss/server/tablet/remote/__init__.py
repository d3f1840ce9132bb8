"""Segments in remote storage: what is uploaded and removed when, and what readers are told."""
