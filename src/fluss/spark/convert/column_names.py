"""Names of columns in options, found as Spark finds them: exactly, else without regard to upper and lower case.

A table may have columns that differ only in case; such a name must be exact. Python sources are not told about
`spark.sql.caseSensitive`, so an exact name wins whatever it says, and another one is found all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fluss.errors import FlussError


def find_column(name: str, names: Sequence[str], what: str) -> int | None:
    """The position of the column that a name means, None if there is none; an error if it could be several.

    >>> find_column("ID", ["name", "id"], "option columns"), find_column("age", ["name", "id"], "option columns")
    (1, None)
    """
    if name in names:
        return list(names).index(name)
    similar = [position for position, other in enumerate(names) if other.lower() == name.lower()]
    if len(similar) > 1:
        meant = " or ".join(repr(names[position]) for position in similar)
        raise FlussError(
            f"{what}: {name!r} may mean {meant}, which differ only in case: write it exactly as one of them"
        )
    return similar[0] if similar else None


def chosen_columns(columns: Iterable[str], known: Collection[str], owner: str) -> list[str]:
    """The columns that the option `columns` means, in its order and with the spelling of the table.

    >>> chosen_columns(["NAME", "id"], ["id", "name"], "table shop.orders")
    ['name', 'id']
    """
    names = list(known)
    chosen: list[str] = []
    for name in columns:
        position = find_column(name, names, "option columns")
        if position is None:
            raise FlussError(f"option columns: {owner} has no column {name!r}, only {', '.join(names)}")
        if names[position] in chosen:
            raise FlussError(f"option columns has a column twice: {names[position]!r}")
        chosen.append(names[position])
    return chosen
