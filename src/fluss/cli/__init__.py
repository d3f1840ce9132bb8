"""The ``fluss`` command: one module per subcommand.

The top layer: no other folder imports it. Start with `main`, which parses the command line and calls ``run`` of the
subcommand's module.
"""
