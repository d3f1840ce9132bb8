"""Names with one underscore belong to the module that defines them; documents and examples use public names only.

`x._name` is allowed where `x` is `self`, `cls` or `super()`, and elsewhere only in the module that defines `_name`.
Even there it is refused for a parameter whose type is imported: its `_name` is that of another module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.tidy.repository import PACKAGE, ROOT, files, name, nodes
from tests.tidy.test_layers import MODULES, module_of

# Private names of other libraries, by the folder that may use them.
FOREIGN = {
    "": {
        "_exit": "os: the only way to end a process at once",
        "_make": "namedtuple: documented, the underscore only keeps it apart from fields",
        "_replace": "namedtuple: documented, the underscore only keeps it apart from fields",
    },
    "lake/tables/iceberg": {
        "_apply": "pyiceberg: a commit of several updates has no public form",
        "_filesystem": "pyiceberg: the file behind an output, to sync it",
        "_path": "pyiceberg: the file behind an output, to sync it",
        "_table": "pyiceberg: the table of a transaction",
    },
    "spark": {
        "_active_spark_context": "pyspark: the running context, without starting one",
        "_ensure_initialized": "pyspark: starts the JVM before there is a session",
        "_gateway": "pyspark: py4j's gateway to the JVM",
        "_get_j_spark_session_class": "pyspark: the class of sessions in the JVM",
        "_getframe": "sys: frames of callers, which Spark gives no other access to",
        "_instantiatedSession": "pyspark: the running session, without starting one",
        "_jsparkSession": "pyspark: the session in the JVM",
        "_jvm": "pyspark: classes of the JVM",
    },
}

# What documents and examples may name of the package, besides what `fluss` itself exports.
DOCUMENTED = frozenset(
    {
        "fluss",
        "fluss.aio",
        "fluss.api.staged",
        "fluss.embedded",
        "fluss.lake.coordinator_calls",
        "fluss.lake.maintenance.service",
        "fluss.lake.reading",
        "fluss.lake.tables.open_lake",
        "fluss.spark",
        "fluss.spark.catalog",
    }
)
EXCEPTIONS = {
    ("docs/lake-reading.md", "fluss.api.table"): "for engines: how to make a `TableAccess`",
    ("examples/lakehouse.py", "fluss.cli.main"): "the command `fluss`, run by the Python of the example",
    ("examples/declarative_pipeline.py", "fluss.spark.java.java_runtime"): "finds Java for a program of Spark's own",
}
# Pages for contributors name what they want.
INTERNAL_PAGES = ("docs/architecture.md", "docs/decisions/", "docs/formats/")


def is_private(attribute: str) -> bool:
    return attribute.startswith("_") and not attribute.startswith("__")


def defined_names(tree: tuple[ast.AST, ...]) -> set[str]:
    """Private names that a module defines, for itself or for instances of its classes."""
    found: set[str] = set()
    for node in tree:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            found.add(node.attr)
    return found


def is_own(value: ast.expr) -> bool:
    """True for `self`, `cls` and `super()`."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def imported_names(tree: tuple[ast.AST, ...]) -> set[str]:
    return {
        alias.asname or alias.name
        for node in tree
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fluss"
        for alias in node.names
    }


def foreign_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, imported: set[str]) -> set[str]:
    """Parameters whose type is defined in another module of ours."""
    arguments = function.args
    return {
        each.arg
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        if each.annotation is not None
        if any(isinstance(part, ast.Name) and part.id in imported for part in ast.walk(each.annotation))
    }


def private_attributes(tree: Iterable[ast.AST]) -> list[ast.Attribute]:
    """Private names of anything but `self`, `cls` and `super()`."""
    return [
        each for each in tree if isinstance(each, ast.Attribute) and is_private(each.attr) and not is_own(each.value)
    ]


def private_uses(tree: tuple[ast.AST, ...], allowed: frozenset[str] = frozenset()) -> list[tuple[int, str]]:
    """Lines that use a private name of another module."""
    found: set[ast.Attribute] = set()
    uses = [each for each in private_attributes(tree) if each.attr not in allowed]
    if uses:  # of most modules there are none
        own, imported = defined_names(tree), imported_names(tree)
        found = {each for each in uses if each.attr not in own}
        for function in tree:
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                foreign = foreign_parameters(function, imported)
                inside = set(ast.walk(function)) if foreign else set()
                found |= {
                    each
                    for each in uses
                    if isinstance(each.value, ast.Name) and each.value.id in foreign and each in inside
                }
    lines = {(each.lineno, ast.unparse(each)) for each in found}
    for node in tree:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fluss":
            lines |= {(node.lineno, f"{node.module}.{alias.name}") for alias in node.names if is_private(alias.name)}
    return sorted(lines)


def uses_of(source: str) -> list[str]:
    return [use for _, use in private_uses(tuple(ast.walk(ast.parse(source))))]


def allowed_in(path: Path) -> frozenset[str]:
    place = path.relative_to(PACKAGE).as_posix()
    return frozenset(
        each for folder, names in FOREIGN.items() if not folder or place.startswith(f"{folder}/") for each in names
    )


def test_no_module_uses_private_names_of_another() -> None:
    offences = [
        f"{name(path)}:{line} uses {use}"
        for path in MODULES
        for line, use in private_uses(nodes(path), allowed_in(path))
    ]
    assert offences == [], "let the module that owns the name offer a function"


def test_every_exception_is_needed() -> None:
    unused = [
        f"{folder}: {each}"
        for folder, names in FOREIGN.items()
        for each in names
        if not any(
            use.attr == each
            for path in MODULES
            if path.is_relative_to(PACKAGE / folder)
            for use in private_attributes(nodes(path))
        )
    ]
    assert unused == []


def test_private_uses_are_found() -> None:
    assert uses_of("class A:\n    def f(self, b):\n        return self._x + super()._x + b._y") == ["b._y"]
    assert uses_of("class A:\n    def f(self, other):\n        self._x = other._x") == []
    assert uses_of("from fluss.b import B\ndef f(b: B | None):\n    _x = b._x") == ["b._x"]
    assert uses_of("from fluss.b import _x, y\nimport b\nb._y()") == ["fluss.b._x", "b._y"]
    assert uses_of("a.__class__.__name__") == []


# ---- documents and examples ----


def documented_modules(text: str, modules: frozenset[str]) -> Iterator[str]:
    """The modules of the package that a document names, alone or with a name after them."""
    for whole in re.findall(r"(?<![\w/.-])fluss(?:\.\w+)+", re.sub(r"from (fluss[\w.]*) import (\w+)", r"\1.\2", text)):
        parts = whole.split(".")
        yield next(each for size in range(len(parts), 0, -1) if (each := ".".join(parts[:size])) in modules)


def test_documents_and_examples_name_public_modules_only() -> None:
    modules = frozenset(module_of(path) for path in MODULES)
    pages = [path for path in files(".md") if path.parent == ROOT / "docs" or path.name == "README.md"]
    examples = [path for path in files(".py") if ROOT / "examples" in path.parents]
    named = {
        (name(path), module)
        for path in (*pages, *examples)
        if not name(path).startswith(INTERNAL_PAGES)
        for module in documented_modules(path.read_text(encoding="utf-8"), modules)
    }
    assert len(named) > 10, "the pages are not read as they are written"
    assert {each for each in named if each[1] not in DOCUMENTED and each not in EXCEPTIONS} == set()
    assert set(EXCEPTIONS) - named == set(), "these exceptions are not needed any more"


def test_names_in_documents_are_found() -> None:
    modules = frozenset({"fluss", "fluss.spark", "fluss.client.net"})
    text = "import fluss\nfluss.connect()\nfrom fluss.client.net import x\n`fluss.spark.tier(...)`, /etc/fluss.yaml"
    assert list(documented_modules(text, modules)) == ["fluss", "fluss.client.net", "fluss.spark"]
