"""Small files, short functions, nothing left over, links that lead somewhere. Each test lists all offenders."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from dev import SPARK42_TESTS
from fluss.server.config.options import OPTIONS
from fluss.version import VERSION
from tests.tidy.repository import PACKAGE, ROOT, files, name, nodes, tree
from tools.environment import LOCK, SPARK42_LOCK, with_spark42
from tools.generate_configuration import PATH as CONFIGURATION_DOCUMENT
from tools.generate_configuration import render

FILE_LIMIT_LINES = 400
FUNCTION_LIMIT_LINES = 70

SOURCES = files(".py")
DOCUMENTS = files(".md")
PACKAGE_SOURCES = [path for path in SOURCES if PACKAGE in path.parents]

# Written in two parts so that this file does not find itself.
LEFTOVERS = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK", r"breakpoint\(\)", "pdb" + r"\.")))
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:home|root|Users|work)/\w")
SKIP_WITHOUT_REASON = re.compile(r"(pytest\.skip|mark\.skip|mark\.xfail)(\(\)|$)")


def offending_lines(paths: Iterable[Path], is_offence: Callable[[str], object]) -> list[str]:
    found = []
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if is_offence(line):
                found.append(f"{name(path)}:{number} {line.strip()}")
    return found


def offending_nodes(paths: Iterable[Path], is_offence: Callable[[ast.AST], object]) -> list[str]:
    found = []
    for path in paths:
        for node in nodes(path):
            if is_offence(node):
                found.append(f"{name(path)}:{getattr(node, 'lineno', 1)}")
    return found


def test_files_are_small() -> None:
    sizes = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {path: lines for path, lines in sizes.items() if lines > FILE_LIMIT_LINES} == {}


def test_functions_fit_a_screen() -> None:
    def is_long(node: ast.AST) -> bool:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        return (node.end_lineno or node.lineno) - node.lineno >= FUNCTION_LIMIT_LINES

    assert offending_nodes(SOURCES, is_long) == []


def test_nothing_is_left_over() -> None:
    assert offending_lines([*SOURCES, *DOCUMENTS, *files(".toml")], LEFTOVERS.search) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert offending_lines([*SOURCES, *DOCUMENTS, *files(".toml"), *files(".lock")], MACHINE_PATHS.search) == []


def test_no_line_ends_with_blanks() -> None:
    assert offending_lines([*SOURCES, *DOCUMENTS, *files(".toml")], lambda line: line != line.rstrip()) == []


def test_skipped_tests_say_why() -> None:
    assert offending_lines(SOURCES, SKIP_WITHOUT_REASON.search) == []


def test_every_module_of_the_package_says_what_it_is_for() -> None:
    silent = [path for path in PACKAGE_SOURCES if not ast.get_docstring(tree(path))]
    assert [name(path) for path in silent] == []


def test_the_package_swallows_no_errors() -> None:
    def swallows(node: ast.AST) -> bool:
        if not isinstance(node, ast.ExceptHandler):
            return False
        is_silent = len(node.body) == 1 and isinstance(node.body[0], ast.Pass)
        is_wide = node.type is None or (isinstance(node.type, ast.Name) and "Exception" in node.type.id)
        return is_silent and is_wide

    assert offending_nodes(PACKAGE_SOURCES, swallows) == []


def test_the_package_has_no_stubs() -> None:
    def is_stub(node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == "NotImplementedError"

    assert offending_nodes(PACKAGE_SOURCES, is_stub) == []


def test_links_in_documents_lead_somewhere() -> None:
    broken = []
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
            is_outside = re.match(r"[a-z]+:", target) or target.startswith("#")
            if not is_outside and not (path.parent / target.split("#")[0]).exists():
                broken.append(f"{name(path)} -> {target}")
    assert broken == []


def test_the_index_of_the_documents_is_complete() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    documents = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [document for document in documents if document != "README.md" and f"({document})" not in index] == []


def test_every_document_begins_with_who_it_is_for() -> None:
    def opening(path: Path) -> str:
        return path.read_text(encoding="utf-8").split("\n\n")[1]

    pages = [path for path in DOCUMENTS if path.parent.name in ("docs", "formats")]
    assert len(pages) > 30
    assert [name(path) for path in pages if not opening(path).startswith("For ")] == []


def test_the_list_of_options_is_in_step() -> None:
    written = CONFIGURATION_DOCUMENT.read_text(encoding="utf-8")
    assert written == render(), "run: python -m tools.generate_configuration"


def test_every_option_with_effect_is_used() -> None:
    readers = [path for path in PACKAGE_SOURCES if "server" in str(path) and not path.name.startswith("config")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in readers)
    attributes = [option.attribute for option in OPTIONS.values() if option.attribute]
    assert [each for each in attributes if f"config.{each}" not in text] == [], "nothing reads these options"


def test_workflows_run_what_developers_run() -> None:
    workflows = list((ROOT / ".github" / "workflows").iterdir())
    commands = [line for path in workflows for line in re.findall(r"\brun: *(.*)", path.read_text(encoding="utf-8"))]
    assert commands
    assert [command for command in commands if not re.fullmatch(r"python3 dev\.py [\w -]+", command)] == []


def test_the_version_is_written_in_one_place() -> None:
    lines = offending_lines([*PACKAGE_SOURCES, ROOT / "pyproject.toml"], lambda line: f'"{VERSION}"' in line)
    assert [line.partition(":")[0] for line in lines] == ["src/fluss/version.py"]


def test_the_lock_files_have_hashes_and_name_no_index() -> None:
    lines = [line for lock in (LOCK, SPARK42_LOCK) for line in lock.read_text(encoding="utf-8").splitlines()]
    assert [line for line in lines if "://" in line or "--index" in line] == []
    assert [line for line in lines if "==" in line and not line.endswith("\\")] == []


def test_the_oldest_spark_has_an_environment_and_tests() -> None:
    """`dev.py spark42`, which is not part of this run: it must not fall behind the lock file and the tests."""
    requirements = with_spark42(LOCK.read_text(encoding="utf-8"))
    spark = re.findall(r"^pyspark==(.*)\n +--hash=", requirements, re.MULTILINE)
    assert [re.sub(r"\.\d+ ", ".* ", each) for each in spark] == ["4.2.* \\"]
    assert [path for path in SPARK42_TESTS if not (ROOT / path).exists()] == []
