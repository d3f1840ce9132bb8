"""The version of this project; pyproject.toml, the handshake and the command take it from here."""

from __future__ import annotations

VERSION = "0.1.0"

PEER = "Apache Fluss 0.9.1"
"""The release whose wire protocol this is; the tests compare with it."""
