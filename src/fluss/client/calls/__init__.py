"""Calls with one request and one answer, as coroutines of the I/O thread. `api.admin` is their public form."""
