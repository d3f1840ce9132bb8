"""Which kinds of files a server's directory has, and what a bad disk or a careless person can do to one."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

PAGE_BYTES = 4096

# Patterns of paths below the data directory. A file that fits none fails the tests: new kinds are to be tried too.
KINDS = {
    "catalog": r"catalog\.sqlite",
    "catalog's write-ahead log": r"catalog\.sqlite-wal",
    "catalog's shared memory": r"catalog\.sqlite-shm",
    "mark of the catalog": r"catalog\.mark",
    "safety copy of the catalog": r"catalog\.copy-.*\.sqlite",
    "lock": r"LOCK",
    "ports": r"ports\.json",
    "record of a table": r"data/.*/table\.json",
    "newest segment": "",  # told from the others by its place, see `kind_of`
    "older segment": r"data/.*/log-\d+/\d{20}\.log",
    "offset index": r"data/.*/\d{20}\.index",
    "time index": r"data/.*/\d{20}\.timeindex",
    "checkpoint and writer state": r"data/.*/bucket\.checkpoint",
    "mark of the last sync": r"data/.*/bucket\.synced",
    "record of remote segments": r"data/.*/remote-log/remote-log\.json",
    "index of a remote segment, here": r"data/.*/remote-log/[^/]*\.(time)?index",
    "record of snapshots": r"data/.*/kv-snapshots/kv-snapshots\.json",
    "staged rows": r"data/.*/staging/\d+\.staged",
    "store: table": r"data/.*/db/\d+\.sst",
    "store: manifest": r"data/.*/db/MANIFEST-\d+",
    "store: CURRENT": r"data/.*/db/CURRENT",
    "store: id": r"data/.*/db/(store-id|IDENTITY)",
    "store: options": r"data/.*/db/(OPTIONS-\d+|rocksdict-config\.json)",
    "store: log, lock, text": r"data/.*/db/(\d+\.log|LOCK|LOG.*)",
    "remote segment": r"remote/log/.*/\d{20}\.log",
    "index of a remote segment": r"remote/log/.*/\d{20}\.(time)?index",
    "remote manifest": r"remote/log/.*\.manifest",
    "metadata of a snapshot": r"remote/kv/.*/_METADATA",
    "file of a snapshot": r"remote/kv/.*/(shared|snap-\d+)/[0-9a-f-]{36}",
    "offsets of a lake snapshot": r"remote/lake/.*\.offsets",
}
# Written by Iceberg in the process of the tiering service, in Iceberg's formats.
NOT_OURS = r"lake/.*"


def kinds_of_files(directory: Path) -> dict[str, list[str]]:
    """Paths of all files by kind; AssertionError for a file of no kind, or a kind without files."""
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name in names:
        if not re.fullmatch(NOT_OURS, name):
            found[kind_of(name, names)].append(name)
    assert all(found.values()), f"no file of the kind {[kind for kind, files in found.items() if not files]}"
    return found


def kind_of(name: str, names: list[str]) -> str:
    kinds = [kind for kind, pattern in KINDS.items() if pattern and re.fullmatch(pattern, name)]
    assert len(kinds) == 1, f"{name} is of the kinds {kinds}: name its kind in {__name__}"
    if kinds == ["older segment"]:
        segments = [each for each in names if each.endswith(".log") and Path(each).parent == Path(name).parent]
        return "newest segment" if name == max(segments) else "older segment"
    return kinds[0]


def flip_a_bit(path: Path, older: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def zero_a_page(path: Path, older: Path, rng: random.Random) -> None:
    """A page of the file system, or of a small file some of its bytes: its end may share a page with other things."""
    content = bytearray(path.read_bytes())
    size = min(PAGE_BYTES, max(1, len(content) // 3))
    start = rng.randrange(0, len(content) - size + 1, size)
    content[start : start + size] = bytes(size)
    path.write_bytes(content)


def cut(path: Path, older: Path, rng: random.Random) -> None:
    with path.open("r+b") as file:
        file.truncate(rng.randrange(path.stat().st_size))


def empty(path: Path, older: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def delete(path: Path, older: Path, rng: random.Random) -> None:
    path.unlink()


def append_garbage(path: Path, older: Path, rng: random.Random) -> None:
    with path.open("ab") as file:
        file.write(rng.randbytes(rng.choice([1, 100, PAGE_BYTES])))


def put_back_an_older_one(path: Path, older: Path, rng: random.Random) -> None:
    path.write_bytes(older.read_bytes())


Damage = Callable[[Path, Path, random.Random], None]
DAMAGES: tuple[Damage, ...] = (
    flip_a_bit,
    zero_a_page,
    cut,
    empty,
    delete,
    append_garbage,
    put_back_an_older_one,
)


def possible_damages(path: Path, older: Path) -> list[Damage]:
    """Those that change something in this file."""
    content = path.read_bytes() if path.exists() else b""
    chosen: list[Damage] = [delete, append_garbage]
    if content:
        chosen += [flip_a_bit, cut, empty]
    if any(content):
        chosen.append(zero_a_page)
    if older.exists() and older.read_bytes() != content:
        chosen.append(put_back_an_older_one)
    return chosen
