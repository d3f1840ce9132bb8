"""Exit codes of the server's processes, on which the supervisor decides."""

from __future__ import annotations

EXIT_FAILED = 1
EXIT_ORPHANED = 70
EXIT_CANNOT_START = 78
"""The error text has been logged and starting again would not help (``sysexits`` calls it EX_CONFIG)."""
