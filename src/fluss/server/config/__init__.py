"""The options of a server: declared in `options` by subject, read by `server_config`."""
