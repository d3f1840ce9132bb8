"""The options of a server: collected by `options` from one module per subject, and read by `server_config`."""
