"""The names in `typings/pyarrow` exist in the installed pyarrow (docs/decisions/arrow-stubs-of-our-own.md)."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator

from tests.tidy.repository import ROOT

STUBS = ROOT / "typings" / "pyarrow"


def with_subclasses(owner: object) -> Iterator[object]:
    """Names of subclasses are declared on the base class too."""
    yield owner
    if isinstance(owner, type):
        subclasses: list[type] = owner.__subclasses__()
        for each in subclasses:
            yield from with_subclasses(each)


def unknown(node: ast.AST, owner: object, place: str) -> Iterator[str]:
    """Public names declared in a module or class that the object lacks."""
    owners = list(with_subclasses(owner))
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.ClassDef, ast.FunctionDef)):
            name = child.name
        elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            name = child.target.id
        else:
            continue
        if name.startswith("_"):
            continue
        if not any(hasattr(each, name) for each in owners):
            yield f"{place}.{name}"
        elif isinstance(child, ast.ClassDef):
            yield from unknown(child, getattr(owner, name), f"{place}.{name}")


def test_declared_names_exist() -> None:
    missing: list[str] = []
    for path in sorted(STUBS.glob("*.pyi")):
        module = "pyarrow" if path.stem == "__init__" else f"pyarrow.{path.stem}"
        missing += unknown(ast.parse(path.read_text(encoding="utf-8")), importlib.import_module(module), module)
    assert missing == []
