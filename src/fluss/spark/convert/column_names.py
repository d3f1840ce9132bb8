"""Names of columns in options, resolved like names in Spark: an exact match, else a match that ignores case.

A table may have columns that differ only in case; such a name must be exact. Python sources cannot see
`spark.sql.caseSensitive`, so regardless of it an exact match wins, and a match that ignores case is accepted too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fluss.errors import FlussError


def find_column(name: str, names: Sequence[str], what: str) -> int | None:
    """Return the position of the named column, None if there is none; raise if several columns match.

    >>> find_column("ID", ["name", "id"], "option columns"), find_column("age", ["name", "id"], "option columns")
    (1, None)
    """
    if name in names:
        return list(names).index(name)
    similar = [position for position, other in enumerate(names) if other.lower() == name.lower()]
    if len(similar) > 1:
        meant = " and ".join(repr(names[position]) for position in similar)
        raise FlussError(f"{what}: {name!r} is ambiguous: {meant} differ only in case; write it exactly as one of them")
    return similar[0] if similar else None


def chosen_columns(columns: Iterable[str], known: Collection[str], owner: str) -> list[str]:
    """Return the columns named by the option `columns`, in its order and with the spelling of the table.

    >>> chosen_columns(["NAME", "id"], ["id", "name"], "table shop.orders")
    ['name', 'id']
    """
    names = list(known)
    chosen: list[str] = []
    for name in columns:
        position = find_column(name, names, "option columns")
        if position is None:
            raise FlussError(f"option columns: unknown column {name!r} in {owner}; its columns are {', '.join(names)}")
        if names[position] in chosen:
            raise FlussError(f"option columns must not have duplicates, got {names[position]!r} twice")
        chosen.append(names[position])
    return chosen
