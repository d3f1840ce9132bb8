"""Other systems that only tests need: an object store, a REST catalog, the worker and the test suite of pyfluss.

Start with `pyfluss_worker`. Apache Fluss, which benchmarks need too, is in `tools/peers`.
"""
