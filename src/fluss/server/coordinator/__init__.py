"""The coordinator role: all changes of metadata, on request and on schedule."""
