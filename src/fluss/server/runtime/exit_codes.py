"""Exit codes of the server's processes, by which the supervisor decides what to do."""

from __future__ import annotations

EXIT_FAILED = 1
EXIT_ORPHANED = 70
EXIT_CANNOT_START = 78
"""The process has logged an error that a restart would not remove (EX_CONFIG of ``sysexits``)."""
