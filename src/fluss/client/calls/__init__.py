"""Requests that are one question and one answer, as coroutines of the I/O thread. `api.admin` is their face."""
