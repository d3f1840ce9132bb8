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
from tools.peers.cache import PeerMissingError
from tools.peers.pyfluss_environment import pyfluss_python

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
    """What `fluss.aio` lacks of a name or does otherwise, None if nothing."""
    owner: Any = getattr(fluss.aio, name.owner, None) if name.owner else fluss.aio
    if owner is None:
        return "the class is missing"
    python_name = "__init__" if name.name == "__new__" else name.name
    if name.owner == "FlussError" and isinstance(name.node, ast.AnnAssign):
        return None if hasattr(owner("text"), name.name) else "the attribute is missing"
    is_field = python_name in getattr(owner, "__dataclass_fields__", ())
    if not hasattr(owner, python_name) and not is_field:
        return "it is missing"
    if not isinstance(name.node, Function):
        return None
    found = None if is_field else inspect.getattr_static(owner, python_name)
    if is_decorated(name.node, "property") or is_decorated(name.node, "setter"):
        return "it is a method, not a property" if inspect.isfunction(found) else None
    if is_field or isinstance(found, property):
        return "it is a property, not a method"
    if is_decorated(name.node, "overload"):
        return None  # our own has one signature for all of them
    return different_signature(owner if python_name == "__init__" else getattr(owner, python_name), name.node)


def different_signature(function: Any, node: Function) -> str | None:
    return (
        different_parameters(function, node)
        or different_waiting(function, node)
        or (None if inspect.isclass(function) else different_result(function, node))
    )


def different_parameters(function: Any, node: Function) -> str | None:
    """Every call that the stubs allow must mean the same here: names, order, kinds and defaults."""
    actual = [each for each in inspect.signature(function).parameters.values() if each.name not in ("self", "cls")]
    by_name = {each.name: each for each in actual}
    positional = [each for each in actual if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    only_by_place = [each.arg for each in node.args.posonlyargs if each.arg not in ("self", "cls")]
    listed = [each.arg for each in node.args.args if each.arg not in ("self", "cls")]
    if len(positional) < len(only_by_place) + len(listed):
        return f"{only_by_place + listed} by their place; there are {list(by_name)}"
    behind = positional[len(only_by_place) :]
    if not all(
        name == each.name or is_other_name(name, each, by_name) for name, each in zip(listed, behind, strict=False)
    ):
        return f"parameters {listed} in this order; there are {[each.name for each in positional]}"
    for each in (*behind[: len(listed)], *(by_name.get(keyword.arg) for keyword in node.args.kwonlyargs)):
        if each is None or each.kind is each.POSITIONAL_ONLY:
            return f"parameters by their names; there are {list(by_name)}"
    documented = documented_defaults(node)
    for each in positional + [each for each in actual if each.kind is each.KEYWORD_ONLY]:
        place = positional.index(each) if each in positional else len(actual)
        known = each.name if place >= len(only_by_place) else only_by_place[place]
        if known not in documented and each.default is each.empty:
            return f"parameter {each.name!r} must have a default"
        wanted = documented.get(known, inspect.Parameter.empty)
        # None counts as not given, whatever the default is.
        if wanted is not inspect.Parameter.empty and wanted is not None and each.default != wanted:
            return f"parameter {each.name!r} has the default {wanted!r}; here it is {each.default!r}"
    return None


def is_other_name(name: str, parameter: inspect.Parameter, by_name: dict[str, inspect.Parameter]) -> bool:
    """Whether a parameter that has another name in older documents takes this one as a keyword as well."""
    alias = by_name.get(name)
    return parameter.default is None and alias is not None and (alias.kind, alias.default) == (alias.KEYWORD_ONLY, None)


def documented_defaults(node: Function) -> dict[str, Any]:
    """Each parameter with its default, `Parameter.empty` without one."""
    places = [*node.args.posonlyargs, *node.args.args]
    padding: list[ast.expr | None] = [None] * (len(places) - len(node.args.defaults))
    pairs = [*zip(places, [*padding, *node.args.defaults], strict=True)]
    pairs += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return {
        argument.arg: inspect.Parameter.empty if default is None else ast.literal_eval(default)
        for argument, default in pairs
        if argument.arg not in ("self", "cls")
    }


def different_waiting(function: Any, node: Function) -> str | None:
    if isinstance(node, ast.AsyncFunctionDef):
        return None if is_awaitable(function) else "it cannot be awaited"
    return "it must be awaited" if inspect.iscoroutinefunction(function) else None


def different_result(function: Any, node: Function) -> str | None:
    """The public classes that the annotated results name must be the same."""
    hint = inspect.signature(function).return_annotation
    if node.returns is None or hint is inspect.Signature.empty or hint == "Any":
        return None
    own_type = getattr(sys.modules[function.__module__], str(hint), None)
    wanted, found = public_classes(node.returns), public_classes(ast.parse(str(hint), mode="eval").body)
    if isinstance(own_type, typing.TypeVar):  # the class of the object itself
        return None if len(wanted) == 1 else f"it returns {ast.unparse(node.returns)}"
    return None if wanted == found else f"it returns {ast.unparse(node.returns)}; here it returns {hint}"


def public_classes(annotation: ast.AST) -> set[str]:
    names = {each.id for each in ast.walk(annotation) if isinstance(each, ast.Name)}
    quoted = [each.value for each in ast.walk(annotation) if isinstance(each, ast.Constant)]
    return {name for name in (*names, *map(str, quoted)) if inspect.isclass(getattr(fluss.aio, name, None))}


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


class _Odd:
    """Calls that are not those of the stubs below."""

    async def waits(self) -> None: ...
    def swapped(self, start_offset: int, bucket_id: int) -> None: ...
    def other_default(self, ignore: bool = True) -> None: ...
    def by_keyword(self, *, a: int) -> None: ...
    def anything(self, *args: int, **more: int) -> None: ...
    def needs_more(self, a: int, b: int) -> None: ...
    def other_result(self) -> fluss.aio.TableInfo: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("stub", "words"),
    [
        ("def waits(self) -> None: ...", "must be awaited"),
        ("def swapped(self, bucket_id: int, start_offset: int) -> None: ...", "in this order"),
        ("def other_default(self, ignore: bool = False) -> None: ...", "default False"),
        ("def by_keyword(self, a: int) -> None: ...", "by their place"),
        ("def anything(self, a: int) -> None: ...", "by their place"),
        ("def needs_more(self, a: int) -> None: ...", "must have a default"),
        ("async def by_keyword(self, *, a: int) -> None: ...", "cannot be awaited"),
        ("def other_result(self) -> TablePath: ...", "returns TablePath"),
    ],
)
def test_differences_are_seen(stub: str, words: str) -> None:
    (node,) = ast.parse(stub).body
    assert isinstance(node, Function)
    assert words in str(different_signature(getattr(_Odd, node.name), node))


def test_the_error_codes_are_the_same_numbers() -> None:
    assert int(fluss.aio.ErrorCode.STORAGE_BACKPRESSURE_EXCEPTION) == 72
    assert int(fluss.aio.ErrorCode.CLIENT_ERROR) == -2
    assert fluss.aio.EARLIEST_OFFSET == -2
