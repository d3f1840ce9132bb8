"""The parts of the guide (003) about primary-key tables."""

from __future__ import annotations

import pytest

from fluss import TablePath
from tests.docs.documents import Block, Reader, document, python_blocks

USERS = TablePath("fluss", "users")


def blocks(start: str, end: str) -> list[Block]:
    """All blocks of the guide between two headings."""
    text = document("003")
    return python_blocks(text[text.index(start) : text.index(end)])


def test_primary_key_tables(reader: Reader, capsys: pytest.CaptureFixture[str]) -> None:
    reader.drop(USERS)
    creating, writing, partial = blocks("\n## Primary Key Tables", "\n## Partitioned Tables")
    reader.run(creating)
    reader.run(writing)
    assert capsys.readouterr().out == "Found: name=Alice, age=25\n"
    assert reader.names["result"] == {"id": 1, "name": "Alice", "age": 25}
    lookuper = reader.names["lookuper"]
    assert reader.wait(lookuper.lookup({"id": 2})) is None
    assert reader.wait(lookuper.lookup({"id": 3})) == {"id": 3, "name": "Charlie", "age": 35}
    reader.run(partial)
    assert reader.wait(lookuper.lookup({"id": 1})) == {"id": 1, "name": "Alice", "age": 27}


def test_partitioned_primary_key_tables(reader: Reader) -> None:
    reader.drop(TablePath("fluss", "partitioned_users"))
    for block in blocks("\n### Partitioned Primary Key Tables", "\n## Error Handling"):
        reader.run(block)
    assert reader.names["result"] == {"user_id": 1, "region": "US", "score": 1234}
    assert reader.wait(reader.names["lookuper"].lookup({"user_id": 2, "region": "US"})) is None
