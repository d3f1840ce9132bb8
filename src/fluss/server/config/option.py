"""The declaration of a server option: its name, how its value is parsed, and whether it has an effect here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The type of an option's value."""

    STRING = "string"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    DURATION = "duration"
    SIZE = "size"
    CHOICE = "choice"


@dataclass(frozen=True)
class Option:
    """One option: its name, how its value is parsed, its default as a string (None: not set), and its effect here."""

    name: str
    kind: Kind
    default: str | None
    meaning: str
    attribute: str | None = None
    special: bool = False
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    own: bool = False
    """True if Apache Fluss does not have the option."""

    @property
    def honoured(self) -> bool:
        return self.special or self.attribute is not None


@dataclass(frozen=True)
class Family:
    """All options whose names start with ``prefix``."""

    prefix: str
    meaning: str
    honoured: bool = False
