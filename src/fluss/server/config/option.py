"""What an option of the server is: its name, how its value is read, and whether it has an effect here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """How the text of a value is read."""

    STRING = "string"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    DURATION = "duration"
    SIZE = "size"
    CHOICE = "choice"


@dataclass(frozen=True)
class Option:
    """One option: name, how its value is read, its default as text (None: not set), and what it does here."""

    name: str
    kind: Kind
    default: str | None
    meaning: str
    attribute: str | None = None
    special: bool = False
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    own: bool = False
    """True: this project's own, unknown to Apache Fluss."""

    @property
    def honoured(self) -> bool:
        return self.special or self.attribute is not None


@dataclass(frozen=True)
class Family:
    """Every option whose name starts with ``prefix``."""

    prefix: str
    meaning: str
    honoured: bool = False
