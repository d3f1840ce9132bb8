"""Versions of formats: what a later version of this program has written is refused, in the same words everywhere.

Whoever reads a document or a file that carries a version asks here before he looks at anything else in it. What has no
version is version 1. docs/durability.md says what is promised.
"""

from __future__ import annotations

from fluss.errors import ErrorCode, FlussError

WHAT_TO_DO = "use the version of flusspy that wrote it, or a newer one"


def refuse_newer(what: str, found: object, known: int, error_code: int = ErrorCode.STORAGE_EXCEPTION) -> None:
    """FlussError if `found` is a version above `known`. What is no version at all is for the caller to judge.

    >>> refuse_newer("catalog /data/catalog.sqlite", 1, 1)
    >>> refuse_newer("catalog /data/catalog.sqlite", 3, 1)
    Traceback (most recent call last):
    ...
    fluss.errors.FlussError: catalog /data/catalog.sqlite has format version 3, this version of flusspy knows versions \
up to 1: use the version of flusspy that wrote it, or a newer one (error code 26)
    """
    if isinstance(found, int) and found > known:
        raise FlussError(
            f"{what} has format version {found}, this version of flusspy knows versions up to {known}: {WHAT_TO_DO}",
            error_code,
        )
