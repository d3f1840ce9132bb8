"""Versions of formats: data written by a later version of this program is refused, with the same message everywhere.

Every reader of a document or file with a version calls `refuse_newer` before it looks at anything else in it. Data
without a version is version 1. docs/durability.md has the promises.
"""

from __future__ import annotations

from fluss.errors import ErrorCode, FlussError

WHAT_TO_DO = "use the version of flusspy that wrote it, or a newer one"


def refuse_newer(what: str, found: object, known: int, error_code: int = ErrorCode.STORAGE_EXCEPTION) -> None:
    """Raise FlussError if `found` is a version above `known`. The caller handles values that are not a version.

    >>> refuse_newer("catalog /data/catalog.sqlite", 1, 1)
    >>> refuse_newer("catalog /data/catalog.sqlite", 3, 1)
    Traceback (most recent call last):
    ...
    fluss.errors.FlussError: catalog /data/catalog.sqlite has format version 3, but this flusspy reads versions up to \
1: use the version of flusspy that wrote it, or a newer one (error code 26)
    """
    if isinstance(found, int) and found > known:
        raise FlussError(
            f"{what} has format version {found}, but this flusspy reads versions up to {known}: {WHAT_TO_DO}",
            error_code,
        )
