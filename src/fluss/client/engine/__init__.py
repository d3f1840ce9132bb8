"""The only way from `spark` and `lake` into the client (`tests/tidy/test_layers.py`).

`api` makes the objects, and no other folder of the client imports this one. Start with `engine` (`Engine`: a
connection) and `table` (`TableAccess`: an open table). The other modules export the types that these take and return.
"""
