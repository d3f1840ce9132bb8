"""What is loaded at first use is loaded under one lock (`fluss/lazy_imports.py`), wherever threads of users come."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "fluss"
# Commands and servers begin in one thread, and load what they need before there are others.
OUTSIDE = ("cli", "server", "testing", "console")
LOCKS = ("import_lock", "_import_lock")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def unguarded(source: str) -> list[int]:
    """Lines of imports of ours inside of functions, by statement or by name, without the lock."""
    return sorted(_unguarded(ast.parse(source), in_function=False, is_locked=False))


def _unguarded(node: ast.AST, *, in_function: bool, is_locked: bool) -> Iterator[int]:
    if in_function and not is_locked and _loads_ours(node):
        assert isinstance(node, (ast.stmt, ast.expr))
        yield node.lineno
    in_function = in_function or isinstance(node, _FUNCTIONS)
    is_locked = is_locked or (isinstance(node, ast.With) and any(_is_lock(item) for item in node.items))
    for child in ast.iter_child_nodes(node):
        yield from _unguarded(child, in_function=in_function, is_locked=is_locked)


def _is_lock(item: ast.withitem) -> bool:
    return isinstance(item.context_expr, ast.Name) and item.context_expr.id in LOCKS


def _loads_ours(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or (node.module or "").split(".")[0] == "fluss"
    if isinstance(node, ast.Import):
        return any(each.name.split(".")[0] == "fluss" for each in node.names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and "import_module" in node.func.id:
        argument = node.args[0]
        return not isinstance(argument, ast.Constant) or str(argument.value).split(".")[0] == "fluss"
    return False


def test_imports_at_first_use_are_guarded() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in OUTSIDE
        for line in unguarded(path.read_text())
    ]
    assert not found, "write `with import_lock:` around them"


def test_the_check_finds_what_it_should() -> None:
    guarded = "def f():\n    with import_lock:\n        from fluss.client import x\n"
    assert unguarded(guarded) == []
    assert unguarded(guarded.replace("import_lock", "other")) == [3]
    assert unguarded("import fluss\ndef f():\n    import pandas\n    import_module('pandas')\n") == []
    assert unguarded("def f():\n    import_module(name)\n    import fluss.client\n") == [2, 3]
