"""`docs/architecture.md` tells the truth: every name on it exists, and its table of layers is that of `test_layers`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.tidy.repository import PACKAGE, ROOT, files
from tests.tidy.test_layers import ALLOWED, MODULES

PAGE = ROOT / "docs" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
FENCE = "```"
FILE_NAME = re.compile(r"(?:[\w.]+/)*\w+\.(?:py|java|md)")
API_KEY = re.compile(r"\b[A-Z]{3,}(?:_[A-Z]+)+\b")
# Always open to everybody, so the page says it once and not in every row.
OPEN_TO_ALL = frozenset({"errors", "generated_code", "lazy_imports", "version"})


class Row(NamedTuple):
    """A line of a table, its cells by the names of the columns."""

    number: int
    cells: dict[str, str]


def rows(text: str) -> Iterator[Row]:
    """All lines of all tables, without their heads."""
    head: list[str] = []
    is_figure = False
    for number, line in enumerate(text.splitlines(), start=1):
        is_figure ^= line.startswith(FENCE)
        if is_figure or not line.startswith("|"):
            head = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not head:
            head = cells
        elif not set(line) <= set("|- :"):
            assert len(cells) == len(head), f"line {number} has {len(cells)} cells under {len(head)} headings"
            yield Row(number, dict(zip(head, cells, strict=True)))


def quoted(text: str) -> list[str]:
    """What stands between backquotes."""
    return re.findall(r"`([^`]+)`", text)


@cache
def defined(path: Path) -> frozenset[str]:
    """Names of classes and functions of a file; those of a class also as `Class.method`."""
    if path.suffix == ".java":
        return frozenset(re.findall(r"\bclass (\w+)", path.read_text(encoding="utf-8")))
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return frozenset(found)


def offences_in_rows(text: str) -> list[str]:
    """Files and functions of tables with such columns that are not there."""
    offences = []
    for row in rows(text):
        if not {"file", "function"} <= row.cells.keys():
            continue
        named, functions = quoted(row.cells["file"]), quoted(row.cells["function"])
        if len(named) != 1 or not functions:
            offences.append(f"line {row.number}: one file and at least one function belong into a row")
        elif not (PACKAGE / named[0]).is_file():
            offences.append(f"line {row.number}: there is no {named[0]}")
        else:
            missing = [each for each in functions if each not in defined(PACKAGE / named[0])]
            offences += [f"line {row.number}: {named[0]} has no {each}" for each in missing]
    return offences


def missing_paths(text: str) -> list[str]:
    """Files and folders between backquotes that are neither below the package nor below the repository."""
    missing = []
    for each in quoted(re.sub(f"(?s){FENCE}.*?{FENCE}", "", text)):
        is_path = FILE_NAME.fullmatch(each) or re.fullmatch(r"(?:\w+/)+", each)
        if is_path and not (PACKAGE / each).exists() and not (ROOT / each).exists():
            missing.append(each)
    return missing


@cache
def words_of_sources() -> frozenset[str]:
    """Every word of the package, also names of options, which have dots and hyphens."""
    sources = [path for suffix in (".py", ".java") for path in files(suffix) if PACKAGE in path.parents]
    found: set[str] = set()
    for path in sources:
        text = path.read_text(encoding="utf-8")
        found.update(re.findall(r"\w+", text), re.findall(r'"([\w.-]+)"', text))
    return frozenset(found)


def unknown_names(text: str) -> list[str]:
    """Files in figures, API keys and names in prose that no source has."""
    source = words_of_sources()
    names = {path.name for path in MODULES}
    figures = "\n".join(re.findall(f"(?s){FENCE}.*?{FENCE}", text))
    prose = re.sub(f"(?s){FENCE}.*?{FENCE}", "", text)
    unknown = [each for each in FILE_NAME.findall(figures) if each.rpartition("/")[2] not in names]
    unknown += [each for each in API_KEY.findall(text) if each not in source]
    for each in quoted(prose):
        is_name = re.fullmatch(r"[A-Za-z_][\w.]*|[a-z]+\.[a-z.-]+", each) and each not in names
        is_known = each in source or ("-" not in each and each.rpartition(".")[2] in source)
        if is_name and not is_known:
            unknown.append(each)
    return unknown


def test_the_tables_name_files_and_functions_that_exist() -> None:
    assert sum("function" in row.cells for row in rows(TEXT)) > 150, "the tables are not read as they are written"
    assert offences_in_rows(TEXT) == []


def test_the_page_names_paths_that_exist() -> None:
    assert missing_paths(TEXT) == []


def test_the_page_names_nothing_that_no_source_has() -> None:
    assert unknown_names(TEXT) == []


def test_wrong_names_are_found() -> None:
    head = "| file | function |\n|---|---|\n"
    assert offences_in_rows(head + "| `errors.py` | `FlussError`, `ErrorCode` |") == []
    assert len(offences_in_rows(head + "| `errors.py` | `FlusError` |")) == 1
    assert len(offences_in_rows(head + "| `client/net/rpc.py` | `RpcConnection.fetched` |")) == 1
    assert len(offences_in_rows(head + "| `client/rpc.py` | `RpcConnection` |")) == 1
    assert missing_paths("`client/scanner/` and `server/network/`, `client/rpc.py`") == [
        "client/scanner/",
        "client/rpc.py",
    ]
    assert unknown_names("FETCH_LOGS, `LogScaner` and `LogScanner`") == ["FETCH_LOGS", "LogScaner"]
    assert unknown_names("`log.flush` and `kv.recent-row.size`") == ["kv.recent-row.size"]


def test_every_folder_has_its_line() -> None:
    named = {quoted(row.cells["folder"])[0] for row in rows(TEXT) if "folder" in row.cells}
    holds_modules = {path.parent for path in MODULES if path.name != "__init__.py"} - {PACKAGE}
    assert {f"{path.relative_to(PACKAGE).as_posix()}/" for path in holds_modules} - named == set()


def test_the_table_of_layers_is_the_one_that_is_enforced() -> None:
    told = {
        quoted(row.cells["layer"])[0].removesuffix(".py").strip("/").replace("/", "."): frozenset(
            quoted(row.cells["may import"])
        )
        for row in rows(TEXT)
        if "may import" in row.cells
    }
    assert told == {layer: allowed for layer, allowed in ALLOWED.items() if layer not in OPEN_TO_ALL}
