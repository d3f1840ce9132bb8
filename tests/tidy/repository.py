"""The files that the tidy tests look at."""

from __future__ import annotations

import ast
import gc
from functools import cache, lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fluss"

_FOLDERS = ("src", "tests", "bench", "examples", "tools", "docs", ".ci")
_IGNORED_PARTS = frozenset({"__pycache__", "node_modules"})


def is_generated(path: Path) -> bool:
    """Whether a program wrote the file."""
    return "_pb2" in path.name


@lru_cache
def files(suffix: str) -> tuple[Path, ...]:
    """Every file of the repository with that suffix, generated ones left out."""
    found = [path for path in ROOT.glob(f"*{suffix}") if path.is_file()]
    for folder in _FOLDERS:
        found += [path for path in (ROOT / folder).rglob(f"*{suffix}") if path.is_file()]
    return tuple(
        sorted(
            path
            for path in found
            if not is_generated(path) and not _IGNORED_PARTS & set(path.parts) and ".egg-info" not in str(path)
        )
    )


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """The syntax of a file, the module first; parsed once for all tests that look at it.

    All files together are millions of objects: the collector of cycles would go through them many times.
    """
    gc.disable()
    try:
        return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    finally:
        gc.freeze()
        gc.enable()


def tree(path: Path) -> ast.Module:
    """The module of a file."""
    module = nodes(path)[0]
    assert isinstance(module, ast.Module)
    return module


def name(path: Path) -> str:
    """The path as people write it."""
    return path.relative_to(ROOT).as_posix()
