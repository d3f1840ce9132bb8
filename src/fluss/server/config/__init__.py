"""The options of a server: collected by `options` from one module per subject, and read by `server_config`.

Imported by `apis`, `coordinator`, `tablet` and `process`, and by the command line. Start with `option`.
"""
