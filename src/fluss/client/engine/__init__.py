"""The one way from Spark, the lake and the commands into the client.

`lake` and `spark` import nothing else of the client (`tests/tidy/test_layers.py`). `api` makes the objects, and no
other folder of the client imports this one. Start with `engine.py` (`Engine`: a connection) and `table.py`
(`TableAccess`: an open table). The other modules offer the types that those two take and return.
"""
