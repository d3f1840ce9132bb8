"""How to have digits cut, as docs/values.md has it: every way to write, by the client and by its other face."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from types import ModuleType

import pytest

import fluss
import fluss.aio
from fluss.api.staged import StagedAppender, commit_staged
from tests.docs.documents import CHECKOUT, Block, Reader, python_blocks
from tests.support.servers.targets import running_target

CUT = {"item": "tea", "price": decimal.Decimal("1.99")}


@pytest.fixture
def reader() -> Iterator[Reader]:
    reader = Reader(running_target("embedded"), StagedAppender=StagedAppender, commit_staged=commit_staged)
    yield reader
    reader.close()


@pytest.fixture
def blocks() -> list[Block]:
    text = (CHECKOUT / "docs" / "values.md").read_text(encoding="utf-8")
    return [block for block in python_blocks(text) if block.heading == "Cutting digits"]


@pytest.mark.parametrize("module", [fluss, fluss.aio], ids=["fluss", "fluss.aio"])
def test_every_way_to_write_cuts_digits(reader: Reader, blocks: list[Block], module: ModuleType) -> None:
    schema = fluss.Schema.builder().column("item", fluss.DataTypes.string())
    schema = schema.column("price", fluss.DataTypes.decimal(10, 2))
    by_calls, by_writers, by_spark = blocks
    assert '"onExtraDigits", "truncate"' in by_spark.code, "tests/spark runs it"
    with fluss.connect(reader.target.bootstrap_servers) as db:
        for name, built in (("sales", schema.build()), ("prices", schema.primary_key("item").build())):
            db.drop_table(name, ignore_if_not_exists=True)
            db.create_table(name, built)
        reader.names["db"] = db
        reader.run(by_calls)
        connection = reader.wait(module.FlussConnection.create(reader.target.config()))
        reader.names["conn"] = connection
        reader.run(by_writers)
        assert db.to_arrow("sales").to_pylist() == [CUT] * 3
        assert db.to_arrow("prices").to_pylist() == [CUT]
        closing = connection.close()
        if module is fluss.aio:
            reader.wait(closing)
        del reader.names["conn"]
