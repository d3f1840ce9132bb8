"""Programs written for pyfluss 1.0 run on `fluss.aio` with only the import changed.

The cases of `tests/compat` were written for the published client and proven with it; here the same functions get
`fluss.aio` where they say `fluss`. What they expect is what pyfluss does, so a difference is a difference to pyfluss.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import sys
from collections.abc import Awaitable
from typing import Any

import pyarrow as pa
import pytest

import fluss.aio
from tests.compat import cases as case_package
from tests.compat.cases import kit
from tests.compat.cases.kit import Case, Context, registered
from tests.compat.targets import append_rows, lake_snapshot
from tests.support.servers.targets import Target
from tools.waiting import patience

CASE_DEADLINE_SECONDS = patience(120.0)

# Where this client differs on purpose, or a case needs a server with special limits.
_LIMITS = "needs a server with small limits"
_EXACT = "filters are exact here: rows that do not match never come, pyfluss leaves them to the caller"
NOT_HERE = {
    "partitions:too_many_partitions": _LIMITS,
    "tables:table_exists_already": _LIMITS,
    "tables:replication_and_buckets": _LIMITS,
    "filters:comparisons": _EXACT,
    "filters:texts_and_nulls": _EXACT,
    "filters:combinations": _EXACT,
    "filters:filters_of_every_type": _EXACT,
    "partitions:rows_wait_for_their_partition": "a write to a partition that does not exist fails here",
    "scanning:offset_out_of_range": "poll keeps the server's code 19 here, pyfluss has only its own -2",
    "scanning:a_reader_holds_its_scanner": "subscribing while a reader is open is allowed here",
    "writing:an_unknown_acknowledgement_level": "the configuration refuses it here, pyfluss fails at the first write",
}
# Apache Fluss hides this code from pyfluss, which shows -1.
CODE_7_ALSO_ON_APACHE = frozenset({"load:drop_while_scanning_and_writing", "tables:table_does_not_exist"})


def plain_cases() -> list[Case]:
    """The cases that run on any server."""
    for module in pkgutil.iter_modules(case_package.__path__):
        importlib.import_module(f"{case_package.__name__}.{module.name}")
    return [case for case in registered().values() if case.server == "plain"]


async def raises_code(code: int, awaitable: Awaitable[Any], *fragments: str) -> str:
    """As `kit.raises`, for the codes only: texts are this client's own."""
    with pytest.raises(fluss.FlussError) as caught:
        await awaitable
    assert caught.value.error_code == code, caught.value
    return caught.value.message


@pytest.fixture
def import_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case module sees `fluss.aio` under the name `fluss`."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{case_package.__name__}."):
            for attribute, value in (("fluss", fluss.aio), ("raises", raises_code)):
                if hasattr(module, attribute):
                    monkeypatch.setattr(module, attribute, value)


@pytest.mark.parametrize("case", plain_cases(), ids=lambda case: case.name)
@pytest.mark.usefixtures("import_changed")
def test_case(case: Case, target: Target) -> None:
    if case.name in NOT_HERE:
        pytest.skip(NOT_HERE[case.name])
    if target.is_apache and not case.apache:
        pytest.skip("Apache Fluss does not pass this case itself")
    if target.is_apache and case.name in CODE_7_ALSO_ON_APACHE:
        pytest.skip("a table that does not exist is code 7 here on every server, pyfluss shows -1 on Apache Fluss")
    assert kit.fluss is fluss.aio
    settings = {
        "target": target.name,
        "bootstrap": target.bootstrap_servers,
        "sasl_bootstrap": target.sasl_bootstrap_servers,
        "tablets": target.tablet_count,
    }

    async def ask(what: str) -> None:
        verb, database, table, *rest = what.split()
        if verb == "lake_snapshot":
            lake_snapshot(target.bootstrap_servers, database, table, *rest)
            return
        if verb == "tiered":
            if not target.is_apache:
                append_rows(target.bootstrap_servers, database, table)
            return
        assert verb == "add_column", what
        (column,) = rest
        async with await fluss.aio.FlussConnection.create(target.config()) as connection:
            path = fluss.TablePath(database, table)
            await connection.get_admin().alter_table(path, add_columns={column: pa.string()})

    async def body() -> None:
        context = Context(settings, ask)
        try:
            await asyncio.wait_for(case.body(context), CASE_DEADLINE_SECONDS)
        finally:
            await context.close()

    asyncio.run(body())
