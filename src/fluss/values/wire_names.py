"""Conversion between the numeric enums of the protocol and their names, as users write and see them."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from fluss.errors import FlussError

Kind = TypeVar("Kind", bound=IntEnum)


def word_of(what: str, kind: type[Kind], text: str) -> Kind:
    """The member of the enum `kind` that `text` names, in any case, with dashes or underscores.

    >>> from fluss.model.rebalancing import ServerTag
    >>> word_of("tag", ServerTag, "permanent-offline").value
    0
    """
    name = text.upper().replace("-", "_") if isinstance(text, str) else text
    if name not in kind.__members__:
        known = ", ".join(member.name.lower() for member in kind)
        raise FlussError(f"{what} must be one of {known}, got {text!r}")
    return kind[name]


def word_for(kind: type[IntEnum], number: int) -> str:
    """The name of the member of `kind` with this number; a number without a member is returned as a string.

    >>> from fluss.model.rebalancing import ServerTag
    >>> word_for(ServerTag, 0), word_for(ServerTag, 9)
    ('permanent_offline', '9')
    """
    return kind(number).name.lower() if number in set(kind) else str(number)
