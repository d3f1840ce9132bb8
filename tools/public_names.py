"""The public names of the project, and those that no test uses: `python -m tools.public_names`.

Public are `__all__` of `fluss`, `fluss.aio` and `fluss.spark`, methods, properties and fields of the classes there, the
options of clients and servers, and the subcommands of `fluss`. There are two checks:

`untouched` searches the text of the tests, so it is fast and part of every run. A name that several classes have
(`close`) counts only in a file that also names the class or something that returns it. That is evidence, not proof.
`unexecuted` uses the lines that tests ran, which `tools.coverage_report` has: a function of which no line ran was not
tested, whatever the text of the tests.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import fluss
import fluss.aio
import fluss.spark
from fluss.cli.main import build_parser
from fluss.config import Config
from fluss.server.config.options import OPTIONS

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "fluss"
NAMESPACES: tuple[ModuleType, ...] = (fluss, fluss.aio, fluss.spark)
AIO = "aio"


@dataclass(frozen=True)
class PublicName:
    """A name that users may write. `words` are the spellings of its last part, one of which a test must contain."""

    name: str
    words: frozenset[str]
    owners: frozenset[str] = frozenset()
    """The classes that have the name as a member; empty if it is no member."""
    code: CodeType | None = None
    is_aio: bool = False
    """True if only `fluss.aio` has the name, so that a test must use that module."""

    @property
    def body_lines(self) -> frozenset[int]:
        """Lines that only run when the function is called; the first one runs when it is defined."""
        if self.code is None:
            return frozenset()
        lines = {line for _, _, line in self.code.co_lines() if line is not None}
        return frozenset(lines - {self.code.co_firstlineno})


def _code(value: object) -> CodeType | None:
    """The code of a function, method or property of ours; None for values and for methods that Python generates."""
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, cached_property):
        value = value.func
    elif isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    found = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
    if not isinstance(found, CodeType) or SOURCE not in Path(found.co_filename).parents:
        return None
    return found


def _is_member(owner: type, name: str, value: object) -> bool:
    if name.startswith("_") or (issubclass(owner, enum.Enum) and isinstance(value, owner)):
        return False
    is_field = (
        any(each.name == name for each in dataclasses.fields(owner)) if dataclasses.is_dataclass(owner) else False
    )
    return is_field or isinstance(value, (property, cached_property, classmethod, staticmethod)) or callable(value)


def _members(owner: type) -> Iterator[tuple[type, str, object]]:
    """The members of a class, each with the nearest class of this project that defines it."""
    seen: set[str] = set()
    for base in owner.__mro__:
        if not base.__module__.startswith("fluss"):
            continue
        fields = dict.fromkeys(each.name for each in dataclasses.fields(base)) if dataclasses.is_dataclass(base) else {}
        for name, value in {**fields, **vars(base)}.items():
            if name not in seen and _is_member(base, name, value):
                seen.add(name)
                yield base, name, value


def api_names() -> list[PublicName]:
    """All names to import, and the members of classes; an inherited member is listed once."""
    found: dict[tuple[type | str, str], PublicName] = {}
    in_fluss = {id(getattr(fluss, name)) for name in fluss.__all__}
    for space in NAMESPACES:
        for name in space.__all__:
            value = getattr(space, name)
            is_aio = space is fluss.aio and id(value) not in in_fluss
            if space is fluss.aio and not is_aio:
                continue
            full = f"{space.__name__}.{name}"
            found[space.__name__, name] = PublicName(full, frozenset({name}), code=_code(value), is_aio=is_aio)
            if not inspect.isclass(value) or value is Config:
                continue
            for base, member, inner in _members(value):
                owners = frozenset({name})
                if (before := found.get((base, member))) is not None:
                    owners |= before.owners
                    found[base, member] = dataclasses.replace(before, owners=owners)
                else:
                    full_member, only_aio = f"{full}.{member}", is_aio and base.__module__ == value.__module__
                    words = frozenset({member})
                    found[base, member] = PublicName(full_member, words, owners, _code(inner), only_aio)
    return list(found.values())


def same_spelling(key: str) -> str:
    """The key of an option in the form in which `Config` compares keys."""
    return re.sub(r"[-_]", ".", key.lower())


def option_names() -> list[PublicName]:
    """Options of the client, by key or property, and those of the server that have an effect."""
    names = []
    for attribute, option in vars(Config).items():
        if not attribute.startswith("_") and hasattr(option, "key"):
            words = frozenset({attribute, same_spelling(option.key)})
            names.append(PublicName(f"client option {option.key}", words))
        elif not attribute.startswith("_") and (code := _code(option)) is not None:
            names.append(PublicName(f"fluss.Config.{attribute}", frozenset({attribute}), frozenset({"Config"}), code))
    server = [option.name for option in OPTIONS.values() if option.honoured]
    return names + [PublicName(f"server option {name}", frozenset({same_spelling(name)})) for name in server]


def command_names(parser: argparse.ArgumentParser | None = None, before: str = "fluss") -> list[PublicName]:
    """The subcommands of `fluss`, down to the last level."""
    names = []
    for action in (build_parser() if parser is None else parser)._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                names.append(PublicName(f"command {before} {name}", frozenset({name})))
                names += command_names(inner, f"{before} {name}")
    return names


@dataclass(frozen=True)
class Usage:
    """The words of one file: the names in its code, and the words in its strings."""

    names: frozenset[str]
    texts: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        """The names in the code and the words in the strings."""
        return self.names | self.texts


def usage_of(code: str) -> Usage:
    """Return the names and words in the source of a Python file."""
    names: set[str] = set()
    texts: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.keyword) and node.arg is not None:
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.update(node.name.split("."))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for word in re.findall(r"[A-Za-z][\w.-]*", node.value):
                texts.update((word, same_spelling(word).rstrip(".")))
    return Usage(frozenset(names), frozenset(texts))


def usages(folder: Path) -> list[Usage]:
    """The usages in all Python files of a folder, except the tests of this module, whose names are examples."""
    files = [path for path in sorted(folder.rglob("*.py")) if path.name != f"test_{Path(__file__).name}"]
    return [usage_of(path.read_text(encoding="utf-8")) for path in files]


def _producers(names: Iterable[PublicName]) -> dict[str, set[str]]:
    """The words that lead to an object of each class: its own name, and names that are annotated to return one."""
    found: dict[str, set[str]] = defaultdict(set)
    members = [(owner, member) for space in NAMESPACES for owner in _classes(space) for member in _members(owner)]
    owners = {owner for name in names for owner in name.owners}
    for _, (_, name, value) in members:
        inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        for owner in re.findall(r"\w+", str(getattr(inner, "__annotations__", {}).get("return", ""))):
            found[owner].add(name)
    return {owner: found[owner] | {owner} for owner in owners}


def _classes(space: ModuleType) -> list[type]:
    return [value for name in space.__all__ if inspect.isclass(value := getattr(space, name))]


def untouched(tests: Iterable[Usage], names: Iterable[PublicName] | None = None) -> list[str]:
    """Public names that no test file uses."""
    wanted = list(all_names() if names is None else names)
    producers = _producers(wanted)
    shared: Mapping[str, int] = _counts(word for name in wanted if name.owners for word in name.words)
    files = list(tests)

    def is_touched(name: PublicName, file: Usage) -> bool:
        is_api = name.name.startswith("fluss")
        if not name.words & (file.names if is_api else file.all):
            return False
        if name.is_aio and AIO not in file.names:
            return False
        if not name.owners or all(shared[word] == 1 for word in name.words):
            return True
        return any(producers[owner] & file.names for owner in name.owners)

    return [name.name for name in wanted if not any(is_touched(name, file) for file in files)]


def _counts(words: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for word in words:
        counts[word] += 1
    return counts


def unexecuted(
    executed: Callable[[str], Iterable[int]], names: Iterable[PublicName] | None = None
) -> tuple[list[str], list[str]]:
    """Public functions of which no line ran, and the namespaces in which nothing ran at all (they are left out)."""
    found: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for name in all_names() if names is None else names:
        if name.code is not None and name.body_lines:
            ran = not name.body_lines.isdisjoint(executed(name.code.co_filename))
            found["fluss.spark" if name.name.startswith("fluss.spark.") else "fluss"].append((name.name, ran))
    silent = [space for space, functions in found.items() if not any(ran for _, ran in functions)]
    missed = [name for space, functions in found.items() if space not in silent for name, ran in functions if not ran]
    return missed, silent


def all_names() -> list[PublicName]:
    """All public names: of the API, of options and of commands."""
    return [*api_names(), *option_names(), *command_names()]


def main() -> int:
    """List the public names that no test uses."""
    names: list[Any] = list(all_names())
    missing = untouched(usages(ROOT / "tests"), names)
    print(f"{len(names)} public names, of which {len(missing)} are not used by any test")
    for name in missing:
        print(f"  {name}")
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
