"""The API reference (document 002), name by name and parameter by parameter, and what it says about values."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import typing
from typing import Any

import pytest

import fluss
from fluss import ChangeType, OffsetSpec, TableBucket
from tests.docs.documents import document
from tests.docs.reference import Member, members

MEMBERS = members()


def documented_parameters(text: str) -> ast.arguments:
    """The parameters as Python reads them."""
    function = ast.parse(f"def f({text}): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    return function.args


def actual_parameters(member: Member) -> list[inspect.Parameter]:
    owner = getattr(fluss, member.owner)
    function: Any = owner if member.name == member.owner else getattr(owner, member.name)
    found = list(inspect.signature(function).parameters.values())
    is_bound = inspect.isclass(function) or inspect.ismethod(function)
    is_static = isinstance(inspect.getattr_static(owner, member.name, None), staticmethod)
    return found if is_bound or is_static else found[1:]


def is_awaitable(function: Any) -> bool:
    """A coroutine function, or one whose result is declared to be awaitable."""
    if inspect.iscoroutinefunction(function):
        return True
    result = typing.get_type_hints(function, vars(sys.modules[function.__module__])).get("return")
    return hasattr(result, "__await__")


@pytest.mark.skipif(
    not MEMBERS, reason="document 002 is not there: set FLUSS_DOCUMENTS to the folder with the documents"
)
@pytest.mark.parametrize("member", MEMBERS, ids=str)
def test_every_name_is_there_with_its_parameters(member: Member) -> None:
    if member.owner == "constants":
        assert isinstance(getattr(fluss, member.name), int)
        return
    owner = getattr(fluss, member.owner)
    if member.name == "len":
        assert callable(owner.__len__)
        return
    if member.owner == "FlussError":
        assert hasattr(owner("text"), member.name)
        return
    if member.parameters is None:
        assert member.name in dir(owner) or member.name in owner.__dataclass_fields__
        return
    actual = actual_parameters(member)
    documented = documented_parameters(member.parameters)
    names = [argument.arg for argument in documented.args]
    positional = [each for each in actual if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    assert [each.name for each in positional[: len(names)]] == names, "by position and by name"
    keywords = [argument.arg for argument in documented.kwonlyargs]
    assert set(keywords) <= {each.name for each in actual}
    by_name = {each.name: each for each in actual}
    for name, default in zip(names[len(names) - len(documented.defaults) :], documented.defaults, strict=True):
        assert by_name[name].default == ast.literal_eval(default), f"default of {name}"
    for each in actual:
        if each.name not in names:
            assert each.default is not inspect.Parameter.empty, f"{each.name} is not documented, so it needs a default"
    if member.is_awaited and member.name != "get_admin":
        assert is_awaitable(getattr(owner, member.name)), "the document awaits it"


def test_every_configuration_key_reads_and_writes_its_property() -> None:
    pairs = re.findall(r"^(\w+) \|\n([a-z][a-z.-]+) \|$", document("002"), re.MULTILINE)
    assert len(pairs) == 21
    for name, key in pairs:
        default = getattr(fluss.Config(), name)
        changed = {"writer_acks": "1", "security_protocol": "sasl", "bootstrap_servers": "h:1"}.get(name)
        if changed is None and isinstance(default, int):
            changed = str(default - 1 or 2)
        if name == "writer_bucket_no_key_assigner":
            changed = "round_robin"
        value = changed or ("PLAIN" if name == "security_sasl_mechanism" else "text")
        config = fluss.Config({key: value})
        assert str(getattr(config, name)) == value
        other = fluss.Config()
        setattr(other, name, getattr(config, name))
        assert other == config


def test_values_that_the_document_names() -> None:
    text = document("002")
    for name, number, sign in re.findall(r"^ChangeType\.(\w+) \((\d)\) \|\n([+-][AIUD]) \|$", text, re.MULTILINE):
        assert ChangeType[name] == int(number)
        assert ChangeType[name].short_string() == sign
    assert "fluss.EARLIEST_OFFSET |\n-2 |" in text
    assert fluss.EARLIEST_OFFSET == -2
    assert OffsetSpec.timestamp(ts=5) == OffsetSpec.timestamp(5)
    assert TableBucket(1, 2).partition_id is None
    assert issubclass(fluss.FlussError, Exception)
    error = fluss.FlussError("text")
    assert (error.message, error.error_code) == ("text", fluss.ErrorCode.CLIENT_ERROR)
