"""Test code is as tidy as the package: support by subject, tests in the rooms of what they test, no imports upwards."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.tidy.repository import PACKAGE, ROOT, files, name, nodes, tree

MODULES_PER_FOLDER = 15
SUPPORT = ROOT / "tests" / "support"
# What tests, benchmarks, tools and examples have in common.
SHARED = (ROOT / "tools" / "peers", ROOT / "tools" / "servers")
SHARED_MODULES = [path for path in files(".py") if set(SHARED) & set(path.parents)] + [ROOT / "tools" / "waiting.py"]
OUTSIDE_OF_TESTS = [path for path in files(".py") if ROOT / "tests" not in path.parents]
# Folders of tests -> the part of the package whose folders they repeat.
MIRRORS = {"unit": PACKAGE, "spark": PACKAGE / "spark", "lake": PACKAGE / "lake"}


def uses(paths: Iterable[Path], package: str) -> list[str]:
    """Where one of these files uses the package; files that do not even have the word are not parsed."""
    return [
        f"{name(path)} uses {module}"
        for path in paths
        if package in path.read_text(encoding="utf-8")
        for module in used_modules(nodes(path))
        if is_within(module, package)
    ]


def used_modules(nodes_of_file: Iterable[ast.AST]) -> Iterator[str]:
    """Modules that a file imports, or names in a string of their own, as `python -m` and `-p` of pytest take them."""
    for node in nodes_of_file:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            yield node.value.removeprefix("-p")


def is_within(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def folders(*roots: Path) -> list[Path]:
    """Those folders and all below that hold modules."""
    return sorted({path.parent for path in files(".py") if any(root in path.parents for root in roots)})


def test_only_tests_use_tests() -> None:
    assert uses(OUTSIDE_OF_TESTS, "tests") == [], "move what both need to tools/servers or tools/peers"


def test_what_is_shared_works_without_pytest() -> None:
    assert uses(SHARED_MODULES, "pytest") == []


def test_support_does_not_import_tests() -> None:
    offences = [
        f"{name(path)} imports {node.module}"
        for path in files(".py")
        if SUPPORT in path.parents
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and is_within(node.module or "", "tests")
        if not is_within(node.module or "", "tests.support")
    ]
    assert offences == []


@pytest.mark.parametrize(
    "code", ["import tests.support", "from tests import x", "run('-m', 'tests.a.b')", "'-ptests.a'"]
)
def test_a_use_of_tests_is_found(code: str) -> None:
    assert [module for module in used_modules(ast.walk(ast.parse(code))) if is_within(module, "tests")]


def test_support_folders_say_what_lives_there() -> None:
    found = folders(SUPPORT, *SHARED)
    assert len(found) > 10
    assert [name(folder) for folder in found if not ast.get_docstring(tree(folder / "__init__.py"))] == []


def test_support_folders_have_one_subject() -> None:
    sizes = {name(folder): len(list(folder.glob("*.py"))) - 1 for folder in folders(SUPPORT, *SHARED)}
    assert {folder: size for folder, size in sizes.items() if size > MODULES_PER_FOLDER} == {}
    assert sizes["tests/support"] == 0, "a module of test support belongs into the folder of its subject"


def test_folders_of_tests_are_those_of_the_package() -> None:
    offences = []
    for part, package in MIRRORS.items():
        place = ROOT / "tests" / part
        for folder in folders(place):
            if not (package / folder.relative_to(place)).is_dir():
                offences.append(f"{name(folder)}: there is no {name(package / folder.relative_to(place))}")
    assert offences == []
