"""Exit codes of the server's processes, by which the supervisor decides what to do."""

from __future__ import annotations

EXIT_FAILED = 1
EXIT_ORPHANED = 70
EXIT_CANNOT_START = 78
"""The error is logged, and restarting would not help (EX_CONFIG of ``sysexits``)."""
