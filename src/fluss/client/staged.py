"""Moved to `fluss.api.staged`; importing this module warns."""

from __future__ import annotations

import warnings

from fluss.api.staged import (
    ABORT_TIMEOUT_SECONDS,
    DEFAULT_TIMEOUT_SECONDS,
    MAX_TRANSACTION_NAME_BYTES,
    StagedAppender,
    StagedAttempt,
    StagedBucket,
    abort_staged,
    commit_staged,
    last_committed,
    supports_staging,
)

__all__ = [
    "ABORT_TIMEOUT_SECONDS",
    "DEFAULT_TIMEOUT_SECONDS",
    "MAX_TRANSACTION_NAME_BYTES",
    "StagedAppender",
    "StagedAttempt",
    "StagedBucket",
    "abort_staged",
    "commit_staged",
    "last_committed",
    "supports_staging",
]

warnings.warn("fluss.client.staged is now fluss.api.staged", DeprecationWarning, stacklevel=2)
