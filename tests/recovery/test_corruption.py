"""One damaged file of any kind: rows are there, or an error names the file. Never a silent loss, never a crash.

The directory has every kind of file that a server writes. Each case damages one file in one way, starts a server on
it and reads everything: every run damages every kind; file, damage and position are drawn with the seed of the run.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import fluss
from fluss.api.staged import commit_staged
from fluss.errors import FlussError
from fluss.server.storage.log import log_writer
from tests.support.runner.lanes import rounds, seed
from tests.support.storage.damage import KINDS, Damage, kinds_of_files, possible_damages
from tests.support.storage.full_directory import (
    QUIET,
    READERS,
    STAGED_ROWS,
    TRANSACTION,
    Kept,
    connect,
    make_directory,
    open_table,
    options,
)
from tools.waiting import patience

CASES = rounds(gate=60, all_lanes=120, share_of_soak=1.2)
# Files that a server removes or replaces in normal operation.
PASSING = ("catalog.sqlite-wal", "catalog.sqlite-shm", "ports.json", "/db/", ".staged")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    with pytest.MonkeyPatch.context() as patch:
        # What was synced within the last 20 ms before a kill cannot be told from a torn write: the mark lacks it.
        patch.setattr(log_writer, "MARK_INTERVAL_SECONDS", 0.0)
        yield make_directory(tmp_path_factory.mktemp("every-kind"))


class Lines(logging.Handler):
    """The warnings and errors that the server logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def draw_cases(kept: Kept) -> list[tuple[str, str, Damage, int]]:
    """Kind, file, damage and a seed for the position in the file: every kind in turn."""
    rng = random.Random(seed())
    by_kind = kinds_of_files(kept.pristine)
    cases = []
    for number in range(CASES):
        kind = list(KINDS)[number % len(KINDS)]
        name = rng.choice(by_kind[kind])
        damage = rng.choice(possible_damages(kept.pristine / name, kept.older / name))
        cases.append((kind, name, damage, rng.randrange(2**32)))
    return cases


def test_no_damage_is_silent(kept: Kept) -> None:
    failures = []
    for kind, name, damage, place in draw_cases(kept):
        problems = play(kept, name, damage, place)
        failures += [f"{kind}: {damage.__name__}({name!r}), place {place}: {problem}" for problem in problems]
    assert not failures, f"seed {seed()}, {len(failures)} problems:\n" + "\n".join(failures)


def test_an_undamaged_directory_has_everything(kept: Kept) -> None:
    """The control for the test above: the directory itself has no wrong rows."""
    kept.put_back()
    assert read_everything(kept, "nothing") == []


def play(kept: Kept, name: str, damage: Damage, place: int) -> list[str]:
    """Play one case; returns what was wrong."""
    kept.put_back()
    before = lasting_files(kept.place)
    damage(kept.place / name, kept.older / name, random.Random(place))
    problems = read_everything(kept, name)
    gone = before - lasting_files(kept.place) - {name}
    return problems + ([f"the server removed {sorted(gone)}"] if gone else [])


def lasting_files(place: Path) -> set[str]:
    names = (str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    return {name for name in names if not any(part in name for part in PASSING)}


def read_everything(kept: Kept, damaged: str) -> list[str]:
    lines = Lines()
    logging.getLogger("fluss").addHandler(lines)
    try:
        return _read_everything(kept, damaged, lines)
    finally:
        logging.getLogger("fluss").removeHandler(lines)


def _read_everything(kept: Kept, damaged: str, lines: Lines) -> list[str]:
    problems: list[str] = []

    def check_named(what: str, error: FlussError) -> None:
        if not any(is_named(damaged, text) for text in (error.message, *lines.texts)):
            problems.append(f"{what}: the error does not name the file: {error}")

    try:
        server = fluss.embedded(kept.place, config=options(kept.place, QUIET))
    except FlussError as error:
        check_named("start", error)
        return problems
    with server, connect(server.bootstrap_servers) as db:
        is_log_readable = True
        for what, reader in READERS.items():
            try:
                found = reader(db)
            except FlussError as error:
                check_named(what, error)
                is_log_readable = is_log_readable and what != "log"
                continue
            if found != kept.tables[what]:
                problems.append(f"{what}: {len(found)} rows, not the {len(kept.tables[what])} that were acknowledged")
        if not is_log_readable:  # what else is appended to it would not be either
            return problems
        try:
            commit_staged(open_table(db, "log"), TRANSACTION, 0, [kept.attempt], patience(10.0))
            if sorted(READERS["log"](db)) != sorted([*kept.tables["log"], *STAGED_ROWS]):
                problems.append("staged rows: not what was staged")
        except FlussError as error:
            check_named("staged rows", error)
    return problems


def is_named(damaged: str, text: str) -> bool:
    """True if an error names the file: a write-ahead log by the catalog's name, a copied index by its segment's id."""
    name = Path(damaged).name.removesuffix("-wal").removesuffix("-shm")
    return (name.partition(".")[0] if "/remote-log/" in damaged and name.endswith("index") else name) in text
