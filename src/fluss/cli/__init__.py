"""The ``fluss`` command: one module per subcommand."""
