"""`fluss.aio` has every public name of pyfluss 1.0, with its parameters: the published type stubs are walked."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import fluss.aio
from tests.support.peers import PeerMissingError
from tests.support.pyfluss_environment import pyfluss_python

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Name:
    """A class, function, method, property or constant of the stubs."""

    owner: str
    name: str
    node: ast.AST

    def __str__(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner else self.name


@functools.cache
def stub_text() -> str:
    """The stubs; `PeerMissingError` where pyfluss cannot be had."""
    library = pyfluss_python().parents[1] / "lib"
    return next(library.glob("python*/site-packages/fluss/__init__.pyi")).read_text(encoding="utf-8")


def names() -> Iterator[Name]:
    for node in ast.parse(stub_text()).body:
        if isinstance(node, ast.ClassDef):
            yield Name("", node.name, node)
            for item in node.body:
                if isinstance(item, Function):
                    yield Name(node.name, item.name, item)
                elif isinstance(item, (ast.AnnAssign, ast.Assign)):
                    target = item.target if isinstance(item, ast.AnnAssign) else item.targets[0]
                    assert isinstance(target, ast.Name)
                    yield Name(node.name, target.id, item)
        elif isinstance(node, Function):
            yield Name("", node.name, node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield Name("", node.target.id, node)


def is_decorated(node: ast.AST, suffix: str) -> bool:
    return isinstance(node, Function) and any(ast.unparse(each).endswith(suffix) for each in node.decorator_list)


def missing_parts(name: Name) -> str | None:
    """What `fluss.aio` lacks of a name, None if nothing."""
    owner: Any = getattr(fluss.aio, name.owner, None) if name.owner else fluss.aio
    if owner is None:
        return "the class is missing"
    python_name = "__init__" if name.name == "__new__" else name.name
    if name.owner == "FlussError" and isinstance(name.node, ast.AnnAssign):
        return None if hasattr(owner("text"), name.name) else "the attribute is missing"
    if not hasattr(owner, python_name) and python_name not in getattr(owner, "__dataclass_fields__", ()):
        return "it is missing"
    if not isinstance(name.node, Function) or is_decorated(name.node, "property") or is_decorated(name.node, "setter"):
        return None
    return different_parameters(owner if python_name == "__init__" else getattr(owner, python_name), name.node)


def different_parameters(function: Any, node: Function) -> str | None:
    actual = inspect.signature(function).parameters
    takes_anything = any(each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL) for each in actual.values())
    documented = [*node.args.args, *node.args.kwonlyargs]
    for argument in documented:
        if argument.arg in ("self", "cls") or takes_anything:
            continue
        if argument.arg not in actual:
            return f"parameter {argument.arg!r} is missing; there are {list(actual)}"
    with_default = [each.arg for each in node.args.args[len(node.args.args) - len(node.args.defaults) :]]
    needed = {each.arg for each in (*node.args.posonlyargs, *node.args.args)} - set(with_default)
    for each in actual.values():
        is_needed = each.default is each.empty and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        if is_needed and each.name != "self" and each.name not in needed and not node.args.posonlyargs:
            return f"parameter {each.name!r} must have a default"
    if isinstance(node, ast.AsyncFunctionDef) and not is_awaitable(function):
        return "it cannot be awaited"
    return None


def is_awaitable(function: Any) -> bool:
    if inspect.iscoroutinefunction(function):
        return True
    result = typing.get_type_hints(function, vars(sys.modules[function.__module__])).get("return")
    return hasattr(result, "__await__")


def test_every_name_of_pyfluss_is_there() -> None:
    try:
        stub_text()
    except PeerMissingError as error:
        pytest.skip(str(error))
    offences = []
    seen = 0
    for name in names():
        seen += 1
        missing = missing_parts(name)
        if missing is not None:
            offences.append(f"{name}: {missing}")
    assert seen > 300
    assert offences == []


def test_the_error_codes_are_the_same_numbers() -> None:
    assert int(fluss.aio.ErrorCode.STORAGE_BACKPRESSURE_EXCEPTION) == 72
    assert int(fluss.aio.ErrorCode.CLIENT_ERROR) == -2
    assert fluss.aio.EARLIEST_OFFSET == -2
