"""The check of format versions: data that a later version of this program wrote is refused, always with one message.

Every reader of a document or file with a version calls `refuse_newer` before it reads anything else in it. Data without
a version number has version 1. docs/durability.md states which versions can be read.
"""

from __future__ import annotations

from fluss.errors import ErrorCode, FlussError

WHAT_TO_DO = "use the version of flusspy that wrote it, or a newer one"


def refuse_newer(what: str, found: object, known: int, error_code: int = ErrorCode.STORAGE_EXCEPTION) -> None:
    """Raise FlussError if the version `found` is above `known`. A `found` that is not an int is left to the caller.

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
