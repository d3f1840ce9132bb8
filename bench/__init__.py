"""Benchmarks against Apache Fluss, both servers driven by the published pyfluss client. See docs/benchmarks.md."""
